"""Let the number of a table's buckets follow its size: ``rebucket.py --spec URI --report URI``."""

import sys

from lakecdc.maintain.rebucket import rebucket
from lakecdc.run import each_table, main

if __name__ == "__main__":
    sys.exit(main("rebucket", each_table(rebucket)))
