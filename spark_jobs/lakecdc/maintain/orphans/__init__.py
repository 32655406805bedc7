"""Files below a table's location that nothing in its metadata explains."""
