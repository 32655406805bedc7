"""Run several maintenance jobs in sequence: ``govern.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("govern"))
