"""Replay quarantined messages: ``replay_quarantine.py --spec URI --report URI``."""

import sys

from lakecdc.runtime.run import main

if __name__ == "__main__":
    sys.exit(main("replay_quarantine"))
