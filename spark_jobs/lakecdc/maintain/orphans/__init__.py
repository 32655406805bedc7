"""Find and remove files below a table's location that nothing in its metadata refers to."""
