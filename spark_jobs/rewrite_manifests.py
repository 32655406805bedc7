"""Rewrite many small manifests into few: ``rewrite_manifests.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("rewrite_manifests"))
