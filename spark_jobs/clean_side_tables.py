"""Remove what nobody needs from the tables beside targets: ``clean_side_tables.py --spec URI --report URI``."""

import sys

from lakecdc.maintain.side_tables import clean_side_tables
from lakecdc.run import each_table, main

if __name__ == "__main__":
    sys.exit(main("clean_side_tables", each_table(clean_side_tables)))
