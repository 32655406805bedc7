"""Keep tables fast and clean: every job decides from the measured health of the table."""
