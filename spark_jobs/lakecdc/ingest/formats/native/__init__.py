"""The second engine: JSON decoded by DuckDB inside Python tasks, several times faster than in the JVM.

It takes what is plain: envelopes of known columns whose values have an exact text. As soon as a batch holds anything
else (a TRUNCATE, a new column, a value that does not fit, a tombstone without its delete, text that is no JSON), the
whole batch is left to the JVM, which judges such things; so both engines give the same rows.

``decoding`` and ``exact`` are the SQL, ``envelopes`` what of it is a format's own, ``schemas`` are those that messages
carry, ``layout`` the columns, ``fold`` keeps the last event of each key, ``placeholders`` fills what that one left out,
``grouping`` says which task gets which keys, ``packing`` is how rows travel, ``pieces`` reads files, ``log`` takes the
events of databases' logs, ``tasks`` are the Python tasks and ``engine`` is the driver's side.
"""

from lakecdc.ingest.formats.native.engine import Native, Packed, Scan, decode_native, refusal
from lakecdc.ingest.formats.native.envelopes import is_read as reads

__all__ = ["Native", "Packed", "Scan", "decode_native", "reads", "refusal"]
