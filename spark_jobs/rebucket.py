"""Adapt the number of a table's buckets to its size: ``rebucket.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("rebucket"))
