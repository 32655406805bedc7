"""Store and clean up the specs and reports of tries."""
