"""What a table wants of the messages of a format: its columns, its key, its source tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakecdc.ingest.engine.schemas import SchemaError, encoded, first_types, outgrown

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.ingest.formats.envelope import Read
    from lakecdc.ingest.formats.values import Field

#: formats that the engine reads
FORMATS = frozenset(
    (
        *("debezium-json", "debezium-avro", "debezium-flat-json"),
        *("canal-json", "maxwell-json", "ogg-json", "dms-json", "json"),
    )
)
#: formats whose messages may have many rows, and tell the types of their columns
MANY_ROWS = frozenset(("canal-json",))
#: formats whose values may stand for "unchanged", and whose messages may carry their schemas
_OF_DEBEZIUM = frozenset(("debezium-json", "debezium-avro", "debezium-flat-json"))
_WITH_SCHEMAS = frozenset(("debezium-json", "debezium-flat-json"))


@dataclass(frozen=True)
class Judged:
    """What a survey of all messages has told of a table, so that each of them is applied, rejected or another table's.

    :param read: reads the envelopes of messages.
    :param source_tables: whose events are the table's; None among them for messages that tell no table.
    :param encoded: for columns that schemas of the batch write in different ways: how, by the schema's text.
    """

    read: Callable[[pa.RecordBatch], Iterable[Read]]
    source_tables: frozenset[str | None]
    encoded: Mapping[str, Mapping[str, Field]]


@dataclass(frozen=True)
class Decoding:
    """How the messages of one table are read.

    :param fields: all columns of the table.
    :param key: names of its key columns.
    :param table: the source table that is wanted, or its end.
    :param epoch: epoch of the source's identity.
    :param unavailable_value: Debezium's placeholder.
    :param ignored: columns of the source that the table leaves out.
    :param keyed: messages have keys, headers, topics and partitions, not values alone.
    :param format: the messages' format.
    :param order_by: member of the row that tells the order, if the format leaves that to the source's settings.
    :param wants: tells whether a source table is one of several that feed the table; None for one of them.
    :param source_column: column that takes the source table's name.
    :param encodings: those that the target declares, by column.
    :param told: columns of the schema that all messages have; None if they carry none.
    :param texts: records stand beside the messages as JSON, in ``payload``, ``key_text`` and ``moved_text``.
    :param routed: the source has chosen their topics for the table, so that one that is called like a source table
        stands for it.
    :param fixed: columns whose types the target declares.
    :param named: the target names its source table, so that case counts.
    :param only_added: rows of a format that tells no kind of change are added.
    :param tells_key: messages tell the key of their rows, which has to be the table's.
    :param rejects: an event that does not fit its table is rejected, since the table's columns are known.
    :param sets_aside: a message that cannot be judged alone is set aside; without it, one ends the task.
    :param judged: what a survey has told; None if there was none.
    """

    fields: tuple[Field, ...]
    key: tuple[str, ...]
    table: str
    epoch: int
    unavailable_value: str
    ignored: tuple[str, ...] = ()
    keyed: bool = True
    format: str = "debezium-json"
    order_by: str | None = None
    wants: Callable[[str], bool] | None = None
    source_column: str | None = None
    encodings: Mapping[str, str] = field(default_factory=dict)
    told: tuple[Field, ...] | None = None
    texts: bool = False
    routed: bool = False
    fixed: tuple[str, ...] = ()
    named: bool = True
    only_added: bool = False
    tells_key: bool = False
    rejects: bool = False
    sets_aside: bool = False
    judged: Judged | None = None

    @property
    def large_fields(self) -> tuple[Field, ...]:
        """Columns whose values a message may leave out, so that a placeholder stands for them."""
        return tuple(f for f in self.fields if f.is_large) if self.format in _OF_DEBEZIUM else ()

    @property
    def has_schemas(self) -> bool:
        """Whether messages may carry their schemas, in Kafka Connect's notation."""
        return self.format in _WITH_SCHEMAS

    @property
    def tells_types(self) -> bool:
        """Whether messages tell the types of their columns."""
        return self.format in MANY_ROWS

    def with_schema(self, told: tuple[Field, ...]) -> Decoding:
        """Read messages that carry a schema.

        :param told: its columns.
        :raises SchemaError: they cannot be decoded by it.
        """
        changed = outgrown(self.fields, told, self.fixed)
        if changed:
            raise SchemaError(f"another type of the column {changed}")
        own = (self.source_column,) if self.source_column else ()
        fields = encoded(self.fields, told, self.key, self.ignored, self.encodings, own)
        return replace(self, fields=fields, told=told)

    def with_names(self, messages: pa.RecordBatch) -> Decoding:
        """Read messages that tell what the numbers in their columns stand for.

        :param messages: the first ones.
        """
        if not self.tells_types:
            return self
        names = {f.name: f for f in first_types(messages, self) if f.names}
        fields = tuple(names[f.name].with_type(f.type) if f.name in names else f for f in self.fields)
        return replace(self, fields=fields)

    def is_own(self, source_table: str, topic: str | None = None) -> bool:
        """Check whether a source table feeds the table; as ``source_tables.feeds`` decides."""
        if self.wants is not None:
            return self.wants(source_table)
        if _ends(source_table, self.table, fold=not self.named):
            return True
        stands = self.routed and topic is not None and _ends(topic, source_table)
        return stands and (not self.named or _ends(str(topic), self.table))


def _ends(name: str, end: str, *, fold: bool = False) -> bool:
    name, end = f".{name}", f".{end}"
    return name.lower().endswith(end.lower()) if fold else name.endswith(end)
