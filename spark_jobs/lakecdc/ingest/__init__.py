"""Turn the events of a source into commits: read, decode, order, fold, apply."""
