"""Sort data files whose keys overlap: ``sort_data_files.py --spec URI --report URI``."""

import sys

from lakecdc.maintain.sort import sort_data_files
from lakecdc.run import each_table, main

if __name__ == "__main__":
    sys.exit(main("sort_data_files", each_table(sort_data_files)))
