"""Remove orphan files, or restore them: ``remove_orphan_files.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("remove_orphan_files"))
