"""The only room that touches the JVM: load tables, plan scans, stage files, make delete files, commit.

Everything above it works with the objects of this package and never sees py4j.
"""
