"""Call Iceberg through the JVM, which no other room touches: load tables, plan scans, write files, commit.

Everything above it works with this package's objects and never sees py4j.
"""
