"""Compute the statistics of tables where they are stale: ``compute_statistics.py --spec URI --report URI``."""

import sys

from lakecdc.maintain.statistics import compute_statistics
from lakecdc.run import each_table, main

if __name__ == "__main__":
    sys.exit(main("compute_statistics", each_table(compute_statistics)))
