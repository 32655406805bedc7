"""Tables fed from the log of a database: admission, full loads, rounds, parking and release, once for every server."""
