"""The only package that touches the JVM: loads tables, plans scans, stages files, builds delete files, commits.

Everything above it works with this package's objects and never sees py4j.
"""
