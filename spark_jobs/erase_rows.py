"""Erase rows with a proof: ``erase_rows.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("erase_rows"))
