"""Keep tables in an object store alone: names, versions and commits, without a catalog service."""
