"""One operator per job, over one base."""
