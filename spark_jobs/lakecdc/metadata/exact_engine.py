"""Limits of the engine ``exact`` for delete files, whose cost grows with every delete of every data file."""

from __future__ import annotations

#: maximum number of delete rows, which the exact engine holds in the memory of each task
EXACT_DELETE_RECORDS = 200_000
#: maximum number of pairs of data and delete file, because each pair is shipped to a task and opened there
EXACT_PAIRS = 100_000
#: maximum number of rows to read, because a join reads a row in a tenth of the time
EXACT_DATA_RECORDS = 2_000_000
