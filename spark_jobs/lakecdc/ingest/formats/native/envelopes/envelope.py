"""What a format tells the native engine of its messages, in SQL of DuckDB.

A message is parsed in steps, each of which may use the columns of those before:

1. ``text, arrival, gone, "partition"``, and of a message with a key ``record_key, moved, has_moved``: see
   :meth:`lakecdc.ingest.formats.native.decoding.Decoding.sql`.
2. ``e``, the message by the format's shape.
3. the format's own members, ``a`` the row image, ``b`` the texts of the key columns before, ``source_table``.
4. ``kind``, and the text of every column in the row image.
5. parts of the order key and the values of all columns; ``op`` is the kind from here on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Envelope:
    """How the messages of a format are read. All SQL follows the format's module for the JVM.

    :param shape: what ``from_json`` makes of a message, given the same for the row image and for the texts of a key.
    :param members: SQL of members in ``e``, by the names that the expressions below have for them.
    :param image: SQL of the row image in ``e``.
    :param pointer: SQL of its place in the message, a JSON pointer.
    :param before: SQL in ``e`` of the key's texts in the row before.
    :param source_table: SQL in ``e`` of ``schema.table`` or ``database.table``.
    :param kind: SQL of the op of a row event or ``x`` for a tombstone, given SQL that is true for messages of the
        wanted table; ``odd`` for what the JVM has to judge; null for what is knowingly no row event.
    :param key: SQL of a key column's text, given the column's name as SQL and its text in the row image.
    :param position: SQL of a part of the order key, as are the others: integers from 0.
    :param rank: 0 for a read of a snapshot, 8 for a change.
    :param time_us: SQL of the source time in microseconds since 1970, or null.
    :param odd: further conditions for what the JVM has to judge, with the reason.
    """

    shape: Callable[[object, object], object]
    members: Mapping[str, str]
    image: str
    pointer: str
    before: str
    source_table: str
    kind: Callable[[str], str]
    key: Callable[[str, str], str]
    position: str
    ordinal: str
    rank: str
    time_us: str
    odd: tuple[tuple[str, str], ...] = ()
