"""Compare tables with their source: hashes of key ranges first, then the rows of ranges that differ."""
