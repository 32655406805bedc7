"""Roll tables back to an earlier snapshot: ``rollback_tables.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("rollback_tables"))
