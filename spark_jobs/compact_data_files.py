"""Merge small data files and drop deleted rows: ``compact_data_files.py --spec URI --report URI``."""

import sys

from lakecdc.maintain.compact import compact_data_files
from lakecdc.run import each_table, main

if __name__ == "__main__":
    sys.exit(main("compact_data_files", each_table(compact_data_files)))
