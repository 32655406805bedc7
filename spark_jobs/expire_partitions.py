"""Remove old rows and keep them from coming back: ``expire_partitions.py --spec URI --report URI``."""

import sys

from lakecdc.maintain.expire_partitions import expire_partitions
from lakecdc.run import each_table, main

if __name__ == "__main__":
    sys.exit(main("expire_partitions", each_table(expire_partitions)))
