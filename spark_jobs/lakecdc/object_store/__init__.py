"""Keep tables in an object store without a catalog service: names, versions and commits."""
