"""From source events to Iceberg commits: decode, order, fold, apply."""
