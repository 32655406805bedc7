"""Decode messages, logs and records into changes of a table: typed, folded and packed inside Python tasks.

``decode`` takes messages: those of known columns are decoded at once; what a task cannot judge itself (a TRUNCATE, a
new column, text that is not JSON) is set aside, a ``survey`` finds out what it is, and ``decode_messages`` decodes it
with that. ``log`` takes the events of databases' logs, ``records`` the rows of files and databases, ``kept_rows`` the
rows in the quarantine. ``run`` plans the tasks, which are in ``tasks``; ``packed`` holds their results.
"""
