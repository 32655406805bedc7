"""Tag the last snapshots of days and months: ``tag_snapshots.py --spec URI --report URI``."""

import sys

from lakecdc.maintain.tag import tag_snapshots
from lakecdc.run import each_table, main

if __name__ == "__main__":
    sys.exit(main("tag_snapshots", each_table(tag_snapshots)))
