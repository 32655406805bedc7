"""Decode messages, logs and records into changes of a table: typed, folded and packed inside Python tasks.

``decode`` decodes messages: messages with known columns in one pass; messages that a task cannot judge alone (a
TRUNCATE, a new column, text that is not JSON) are set aside for ``decode_messages``, which collects their facts first
(``message_facts``) and then decodes them. ``log`` decodes events of databases' logs, ``records`` rows of files and
databases, ``kept_rows`` rows in the quarantine. ``run`` plans the tasks in ``tasks``; ``packed`` has their results.
"""
