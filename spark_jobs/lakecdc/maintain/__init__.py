"""Jobs that keep tables fast and clean, based on measured table health."""
