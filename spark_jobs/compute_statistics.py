"""Compute stale table statistics: ``compute_statistics.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("compute_statistics"))
