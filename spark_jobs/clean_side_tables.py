"""Remove unneeded rows from the tables beside targets: ``clean_side_tables.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("clean_side_tables"))
