"""Define what a format knows of its messages beside their envelopes, which :mod:`lakecdc.ingest.envelopes` reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lakecdc.ingest.formats.debezium_schema import NO_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.ingest.envelopes.message import Envelope, Rows
    from lakecdc.ingest.formats.avro_registry import Registry
    from lakecdc.ingest.formats.values import Field

#: columns of the message that stay with its envelope
MESSAGE = ("topic", "partition", "offset", "place", "key", "value", "headers")


@dataclass(frozen=True)
class Reading:
    """What a format has to know of a source.

    :param epoch: number of the source's identity, 0 to 65535.
    :param unavailable_value: Debezium's ``unavailable.value.placeholder``.
    :param order_by: member of a row that rises with every change, for formats that tell no order.
    :param registry: has the messages' schemas; None for formats that need none.
    :param routed: the source has chosen the messages' topics for the target.
    :param only_added: rows of a format without kinds of changes are added, none is the newer state of another.
    """

    epoch: int
    unavailable_value: str = "__debezium_unavailable_value"
    order_by: str | None = None
    registry: Registry | None = None
    routed: bool = False
    only_added: bool = False


@dataclass(frozen=True)
class Read:
    """One envelope of a message.

    :param place: of the message in its batch.
    :param schema: text of the row's schema; None without one.
    """

    place: int
    envelope: Envelope
    schema: str | None


@dataclass(frozen=True)
class InJson:
    """Messages whose records stand beside them as the JSON that Debezium would have written.

    :param messages: with texts ``payload``, ``key_text`` and ``moved_text``, ``schema_text``, the schema of the
        payload, and ``unreadable``, ``rule: reason`` of a record that cannot be read; all may be null.
    :param schema: columns of the schema that all payloads have; None if they are of several schemas.
    """

    messages: DataFrame
    schema: tuple[Field, ...] | None


@dataclass(frozen=True)
class Format:
    """A format of change events.

    :param read: reads the rows of messages, as ``Rows`` does, with further options before.
    :param fields: returns columns from the text of a schema, as far as it has them.
    :param placeholders: values may stand for "unchanged".
    :param tombstones: a null value deletes its key.
    :param row_keys: the messages' keys are the keys of their rows.
    :param wraps: messages may carry their schemas beside their payloads.
    :param whole: events have Debezium's structure, and their schemas all columns.
    :param many_rows: messages may have many rows, and tell the types of their columns.
    :param in_json: message frame to the same in JSON; None for a format that is JSON.
    :param doubts: returns columns to which the text of a schema gives a type that the source cannot have.
    :param options: returns the options of a source that ``read`` takes.
    """

    read: Callable[..., Iterable[Envelope]]
    fields: Callable[[str], tuple[Field, ...]] = lambda schema: ()
    placeholders: bool = False
    tombstones: bool = False
    row_keys: bool = False
    wraps: bool = False
    whole: bool = False
    many_rows: bool = False
    in_json: Callable[[DataFrame, Reading], InJson] | None = None
    doubts: Callable[[str], Sequence[str]] = lambda schema: ()
    options: Callable[[Reading], tuple[Any, ...]] = lambda reading: ()

    def rows(self, reading: Reading) -> Rows:
        """Return what reads the rows of messages from a source."""
        return partial(self.read, *self.options(reading))

    def columns_of(self, schema: str) -> tuple[Field, ...]:
        """Return the columns in the text of a schema; none if it is not in the format's notation."""
        try:
            return self.fields(schema)
        except NO_SCHEMA:
            return ()

    def doubted_of(self, schema: str, fixed: Collection[str]) -> str | None:
        """Return why messages with a schema cannot be trusted; None if they can.

        :param fixed: columns whose types do not depend on it.
        """
        try:
            found = [name for name in self.doubts(schema) if name not in fixed]
        except NO_SCHEMA:
            return None
        return f"the source has no such type as the message tells of {found[0]}" if found else None
