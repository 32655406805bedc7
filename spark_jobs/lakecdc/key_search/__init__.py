"""Find the rows of data files that have given keys, and write their positions as delete files."""
