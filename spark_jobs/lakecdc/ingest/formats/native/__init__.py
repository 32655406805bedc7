"""The second engine: messages decoded in plain Python inside tasks, several times faster than in the JVM.

It takes events of known columns. What it does not judge itself (a TRUNCATE, a new column, a value that does not fit,
text that is not JSON) is set aside for the JVM, or makes the whole batch the JVM's.

``decoding`` is what a table wants, ``decoder`` what makes tables of messages, ``schemas`` are those that messages
carry, ``layout`` the columns, ``fold`` keeps the last event of each key, ``placeholders`` fills what that one left out,
``grouping`` says which task gets which keys, ``packing`` is how rows travel, ``pieces`` reads files, ``log`` takes the
events of databases' logs, ``tasks`` are the Python tasks and ``engine`` is the driver's side.
"""

from lakecdc.ingest.formats.native.decoding import FORMATS
from lakecdc.ingest.formats.native.engine import Native, Packed, Scan, decode_native, refusal

__all__ = ["FORMATS", "Native", "Packed", "Scan", "decode_native", "refusal"]
