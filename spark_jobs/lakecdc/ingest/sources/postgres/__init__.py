"""Read Postgres: full loads from an exported snapshot, then the log of one replication slot."""
