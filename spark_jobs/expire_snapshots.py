"""Expire old snapshots and delete their files: ``expire_snapshots.py --spec URI --report URI``."""

import sys

from lakecdc.maintain.expire import expire_snapshots
from lakecdc.run import each_table, main

if __name__ == "__main__":
    sys.exit(main("expire_snapshots", each_table(expire_snapshots)))
