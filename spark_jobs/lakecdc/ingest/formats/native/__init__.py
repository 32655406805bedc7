"""Messages of known columns, decoded, folded and written inside Python tasks.

It takes events of known columns. What it does not judge itself (a TRUNCATE, a new column, a value that does not fit,
text that is not JSON) is set aside to be decoded one by one (``decode_messages``), or makes the whole batch be.

``decoding`` is what a table wants, ``decoder`` what makes tables of messages, ``schemas`` are those that messages
carry, ``layout`` the columns, ``fold`` keeps the last event of each key, ``placeholders`` fills what that one left out,
``grouping`` says which task gets which keys, ``packing`` is how rows travel, ``pieces`` reads files, ``log`` takes the
events of databases' logs, ``tasks`` are the Python tasks, ``packed`` is what they have made and ``engine`` plans them.
"""

from lakecdc.ingest.formats.native.decoding import FORMATS
from lakecdc.ingest.formats.native.engine import Native, Scan, changes_of, decode_native, pack_changes, refusal
from lakecdc.ingest.formats.native.packed import Packed

__all__ = ["FORMATS", "Native", "Packed", "Scan", "changes_of", "decode_native", "pack_changes", "refusal"]
