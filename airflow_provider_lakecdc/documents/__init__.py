"""Storage and cleanup of the specs and reports of task tries."""
