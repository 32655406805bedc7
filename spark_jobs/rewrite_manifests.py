"""Rewrite many small manifests into few: ``rewrite_manifests.py --spec URI --report URI``."""

import sys

from lakecdc.maintain.manifests import rewrite_manifests
from lakecdc.run import each_table, main

if __name__ == "__main__":
    sys.exit(main("rewrite_manifests", each_table(rewrite_manifests)))
