"""Rebuild rows of aggregated tables: ``rebuild_keys.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("rebuild_keys"))
