"""Expire old snapshots and delete their files: ``expire_snapshots.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("expire_snapshots"))
