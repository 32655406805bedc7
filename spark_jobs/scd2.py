"""Maintain the versions of rows: ``scd2.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("scd2"))
