"""Restore a past moment of tables: ``restore_moment.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("restore_moment"))
