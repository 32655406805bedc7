"""Decode messages, logs and records into changes of a table: typed, folded and packed inside Python tasks.

``decode`` takes messages: those of known columns are decoded at once; what a task cannot judge itself (a TRUNCATE, a
new column, text that is not JSON) is set aside for ``decode_messages``, which looks at it first (``message_facts``)
and then decodes it. ``log`` takes the events of databases' logs, ``records`` the rows of files and databases,
``kept_rows`` those in the quarantine. ``run`` plans the tasks, which are in ``tasks``; ``packed`` holds their results.
"""
