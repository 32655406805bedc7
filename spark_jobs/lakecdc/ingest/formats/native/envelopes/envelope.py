"""What a format tells the native engine of its messages, in SQL of DuckDB.

A message is parsed in steps, each of which may use the columns of those before:

1. ``text, arrival, gone, topic, "partition", stamped``, and of its keys ``record_key, moved, has_moved``.
2. ``e``, the message by the format's shape; of a message with many rows one ``image`` after another, ``nth`` from 0.
3. the format's own members, ``a`` the row image, ``b`` the texts of the key columns before.
4. members that stand in the row image beside the columns.
5. ``source_table``, ``kind``, and the text of every column in the row image.
6. parts of the order key and the values of all columns; ``op`` is the kind from here on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lakecdc.ingest.formats.values import Field

NO_TEXT = "NULL::VARCHAR"


@dataclass(frozen=True)
class Envelope:
    """How the messages of a format are read. All SQL follows the format's module for the JVM.

    :param shape: what ``from_json`` makes of a message, given the same for the row image and for the texts of a key.
    :param kind: SQL of the op of a row event or ``x`` for a tombstone, given SQL that is true for messages of the
        wanted table; ``odd`` for what the JVM has to judge; null for what is knowingly no row event.
    :param kind_of_added: the same for a table to which rows are only added, where messages tell no kind of change.
    :param key: SQL of a key column's text, given the column's name as SQL and its text in the row image.
    :param image: SQL of the row image in ``e``.
    :param pointer: SQL of its place in the message, a JSON pointer.
    :param members: SQL of members in ``e``, by the names that other expressions have for them.
    :param rows: SQL in ``e`` of the list of row images, where a message has many.
    :param told: SQL in ``e`` of a map that names the columns of the row, where a message tells them.
    :param fields_told: columns out of that map.
    :param doubted: those of them to which it gives a type that the source cannot have.
    :param before: SQL in ``e`` of the key's texts in the row before; None if there is none.
    :param beside: members of the row image that are no columns, by the names that other expressions have for them.
    :param old_prefix: members of the row image that begin so hold the row before.
    :param columns: which members of a row image are columns.
    :param by_hand: no tool writes the messages, so that a member may come twice.
    :param source_table: SQL of ``schema.table`` or ``database.table``; the topic stands in for one that is empty.
    :param record_key: SQL of the text of the message's key, as far as the format needs it.
    :param old_keys: a header may tell the key that the row had before.
    :param placeholders: values may stand for "unchanged".
    :param position: SQL of a part of the order key, as are the others: integers from 0.
    :param turned: the position stands in the order key with its first bit turned.
    :param rank: 0 for a read of a snapshot, 8 for a change.
    :param time_us: SQL of the source time in microseconds since 1970, or null.
    :param stamped: the message's own time is wanted, ``stamped``.
    :param schemas: messages and keys may carry their schemas, in Kafka Connect's notation.
    :param odd: further conditions for what the JVM has to judge, with the reason.
    :param ordered_by: the same for messages whose order a member of the row tells.
    """

    shape: Callable[[object, object], object]
    kind: Callable[[str], str]
    image: str
    pointer: str
    time_us: str
    key: Callable[[str, str], str] = lambda column, text: text
    members: Mapping[str, str] = field(default_factory=dict)
    rows: str | None = None
    told: str | None = None
    fields_told: Callable[[Mapping[str, str]], tuple[Field, ...]] = lambda told: ()
    doubted: Callable[[Mapping[str, str]], Sequence[str]] = lambda told: ()
    before: str | None = None
    beside: Mapping[str, str] = field(default_factory=dict)
    old_prefix: str | None = None
    columns: Callable[[Sequence[str]], list[str]] = list
    by_hand: bool = False
    source_table: str = NO_TEXT
    record_key: str = NO_TEXT
    old_keys: bool = False
    placeholders: bool = False
    position: str = "0::BIGINT"
    turned: bool = False
    ordinal: str = "0::BIGINT"
    rank: str = "8"
    stamped: bool = False
    schemas: bool = False
    odd: tuple[tuple[str, str], ...] = ()
    ordered_by: Callable[[Envelope, str], Envelope] | None = None
    kind_of_added: Callable[[str], str] | None = None


def whole(text: str) -> str:
    """SQL of the integer that a text is."""
    return f"TRY_CAST({text} AS BIGINT)"


def times(sql: str, factor: int, more: str = "0") -> str:
    """SQL of a number some times, and another one on top; what 63 bits do not hold is a number out of range."""
    beyond = f"{sql} NOT BETWEEN 0 AND {2**62 // factor} OR {more} NOT BETWEEN 0 AND {2**61}"
    return f"CASE WHEN {beyond} THEN -1 ELSE {sql} * {factor} + {more} END"


def no_whole(*texts: str) -> tuple[str, str]:
    """Condition and reason for texts that are neither null nor integers written in the one usual way."""
    strange = " OR ".join(f"{text} IS DISTINCT FROM {whole(text)}::VARCHAR" for text in texts)
    return strange, "a position that is no integer"


def digits(text: str) -> str:
    """SQL of the number at the end of a text such as ``binlog.000012``."""
    return f"TRY_CAST(nullif(regexp_extract({text}, '(\\d+)$', 1), '') AS BIGINT)"


def commit_lsn(sequence: str) -> str:
    """SQL of the position of the last commit in Postgres' ``sequence``, ``["24023119","24023128"]``."""
    return f"TRY_CAST(nullif(regexp_extract({sequence}, '^\\[\"(\\d+)\"', 1), '') AS BIGINT)"


def hexadecimal(digits: str) -> str:
    """SQL of the number that hexadecimal digits mean."""
    return f"TRY_CAST('0x' || {digits} AS BIGINT)"
