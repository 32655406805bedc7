"""Sort data files whose keys overlap: ``sort_data_files.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("sort_data_files"))
