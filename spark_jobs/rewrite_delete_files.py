"""Turn equality deletes into position deletes (format v2) or deletion vectors (v3)."""

import sys

from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.run import each_table, main

if __name__ == "__main__":
    sys.exit(main("rewrite_delete_files", each_table(rewrite_delete_files)))
