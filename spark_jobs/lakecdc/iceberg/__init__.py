"""Call Iceberg through the JVM, which no other room touches: load tables, plan scans, write files, commit.

Everything above it works with the objects of this package and never sees py4j.
"""
