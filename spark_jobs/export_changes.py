"""Export the changes of tables: ``export_changes.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("export_changes"))
