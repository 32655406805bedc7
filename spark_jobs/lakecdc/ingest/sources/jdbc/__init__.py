"""Read tables of a database with queries by a cursor column."""
