"""Tag the last snapshots of days and months: ``tag_snapshots.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("tag_snapshots"))
