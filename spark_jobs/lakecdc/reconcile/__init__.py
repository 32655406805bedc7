"""Comparison of tables with their sources: hashes of key ranges first, then single rows where these differ."""
