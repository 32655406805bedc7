"""Convert equality deletes to position deletes (format v2) or deletion vectors (v3)."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("rewrite_delete_files"))
