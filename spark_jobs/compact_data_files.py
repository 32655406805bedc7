"""Merge small data files and drop deleted rows: ``compact_data_files.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("compact_data_files"))
