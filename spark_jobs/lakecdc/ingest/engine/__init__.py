"""Decode messages, logs and records into changes of a table: typed, folded and packed inside Python tasks.

``decode`` takes messages: those of known columns are decoded at once; what a task cannot judge itself (a TRUNCATE, a
new column, text that is not JSON) is set aside, a ``survey`` tells what it is, and ``decode_messages`` decodes it with
that. ``log`` takes the events of databases' logs, ``records`` the rows of files and databases, ``kept_rows`` what the
quarantine has kept of rows.

``decoding`` is what a table wants, ``events`` are read out of messages, those that are ``alike`` as structs with
``members``, ``places`` are theirs in the source's log, ``decoder`` makes tables of them, ``parts`` are decoded at
once, ``schemas`` are those that messages carry, ``layout`` the columns, ``fold`` keeps the last event of each key,
``placeholders`` fills what that one left out, ``grouping`` says which task gets which keys, ``packing`` is how rows
travel, ``pieces`` reads files, ``tasks`` are the Python tasks, ``packed`` is what they have made and ``run`` plans
them.
"""
