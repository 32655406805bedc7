"""Jobs that keep tables fast and clean, decided from measured table health."""
