"""Run checks on tables: ``check_tables.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("check_tables"))
