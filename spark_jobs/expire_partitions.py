"""Remove old rows and keep them from returning: ``expire_partitions.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("expire_partitions"))
