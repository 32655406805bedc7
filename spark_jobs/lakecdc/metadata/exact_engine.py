"""Up to what the engine ``exact`` rewrites delete files: what it takes grows with every delete of every data file."""

from __future__ import annotations

#: above this many delete rows the exact engine, which holds them in the memory of each task, gives way to the join
EXACT_DELETE_RECORDS = 200_000
#: above this many pairs of data and delete file too, because each pair is shipped to a task and opened there
EXACT_PAIRS = 100_000
#: and above this many rows to be looked at, because a join looks at a row in a tenth of the time
EXACT_DATA_RECORDS = 2_000_000
