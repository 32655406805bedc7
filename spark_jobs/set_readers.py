"""Make tables readable for named engines: ``set_readers.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("set_readers"))
