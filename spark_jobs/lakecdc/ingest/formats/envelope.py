"""Define formats of messages, except for their envelopes, which :mod:`lakecdc.ingest.envelopes` reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lakecdc.ingest.formats.debezium_schema import NO_SCHEMA
from lakecdc.ingest.formats.payloads import Payloads, as_they_are

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.ingest.envelopes.message import Envelope, Rows
    from lakecdc.ingest.formats.avro_registry import Registry
    from lakecdc.ingest.formats.debezium_avro import Schemas
    from lakecdc.ingest.formats.values import Field

#: columns of the message that an envelope keeps
MESSAGE = ("topic", "partition", "offset", "place", "key", "value", "headers")


@dataclass(frozen=True)
class Reading:
    """Options of a source for its format.

    :param epoch: number of the source's identity, 0 to 65535.
    :param unavailable_value: Debezium's ``unavailable.value.placeholder``.
    :param order_by: member of a row that increases with every change, for formats without an order.
    :param registry: registry of the messages' schemas; None for formats without one, and in tasks, because it may hold
        a password.
    :param schemas: the schemas of a batch's messages from the registry.
    :param routed: the source routes the messages' topics to the target.
    :param only_added: rows of a format without kinds of changes are only added, none replaces another.
    """

    epoch: int
    unavailable_value: str = "__debezium_unavailable_value"
    order_by: str | None = None
    registry: Registry | None = None
    schemas: Schemas | None = None
    routed: bool = False
    only_added: bool = False


@dataclass(frozen=True)
class Read:
    """One envelope of a message.

    :param place: place of the message in its batch.
    :param schema: text of the row's schema; None without one.
    """

    place: int
    envelope: Envelope
    schema: str | None


@dataclass(frozen=True)
class Format:
    """A format of change events.

    :param read: reads the rows of messages like ``Rows``, after further options.
    :param fields: returns the columns in the text of a schema.
    :param placeholders: values may stand for "unchanged".
    :param tombstones: a null value deletes its key.
    :param row_keys: the messages' keys are the keys of their rows.
    :param payloads: separates payloads from schemas, if messages may have schemas beside them.
    :param whole: events have Debezium's structure, and their schemas all columns.
    :param many_rows: messages may have many rows, and have the types of their columns.
    :param doubts: returns columns with a type, in the text of a schema, that the source cannot have.
    :param options: returns the source's options for ``read``.
    """

    read: Callable[..., Iterable[Envelope]]
    fields: Callable[[str], tuple[Field, ...]] = lambda schema: ()
    placeholders: bool = False
    tombstones: bool = False
    row_keys: bool = False
    payloads: Callable[[pa.RecordBatch, Reading], Payloads] = as_they_are
    whole: bool = False
    many_rows: bool = False
    doubts: Callable[[str], Sequence[str]] = lambda schema: ()
    options: Callable[[Reading], tuple[Any, ...]] = lambda reading: ()

    @property
    def has_schemas(self) -> bool:
        """Check whether messages may have schemas beside their payloads."""
        return self.payloads is not as_they_are

    def rows(self, reading: Reading) -> Rows:
        """Return the reader of rows in messages of a source."""
        return partial(self.read, *self.options(reading))

    def columns_of(self, schema: str) -> tuple[Field, ...]:
        """Return the columns in the text of a schema; empty if it is not in the format's notation."""
        try:
            return self.fields(schema)
        except NO_SCHEMA:
            return ()

    def doubted_of(self, schema: str, fixed: Collection[str]) -> str | None:
        """Return why messages with a schema cannot be trusted, or None.

        :param fixed: columns whose types do not depend on the schema.
        """
        try:
            doubted = [name for name in self.doubts(schema) if name not in fixed]
        except NO_SCHEMA:
            return None
        return f"the source does not have the type that the message gives for {doubted[0]}" if doubted else None
