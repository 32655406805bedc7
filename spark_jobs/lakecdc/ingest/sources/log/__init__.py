"""Feed tables from a database's log: admission, full loads, rounds, parking and release, the same for every server."""
