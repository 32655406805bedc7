"""Past moments of tables, by their snapshots and the events in their history tables."""
