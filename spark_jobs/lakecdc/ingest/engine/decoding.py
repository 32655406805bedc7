"""Define how the messages of a format are read for one table: its columns, its key, its source tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from lakecdc.contract.target import Target
from lakecdc.ingest.engine.schemas import SchemaError, first_types, outgrown
from lakecdc.ingest.engine.source_tables import feeds
from lakecdc.ingest.formats import find_format
from lakecdc.ingest.formats.envelope import Format, Read, Reading
from lakecdc.ingest.formats.values import Field


@dataclass(frozen=True)
class Judged:
    """Result of a first pass, by which each message is applied, rejected or another table's.

    :param read: reads the envelopes of messages.
    :param source_tables: source tables that feed the table; None among them for messages without a table.
    :param encoded: encodings of columns that the batch's schemas encode differently, by the schema's text.
    """

    read: Callable[[pa.RecordBatch], Iterable[Read]]
    source_tables: frozenset[str | None]
    encoded: Mapping[str, Mapping[str, Field]]


@dataclass(frozen=True)
class Decoding:
    """Options for reading the messages of one table.

    :param keyed: messages have keys, headers, topics and partitions, not only values.
    :param schema: columns of the schema that all messages have; None without schemas.
    :param rejects: reject events that do not fit the table, because its columns are known.
    :param sets_aside: set aside messages that cannot be judged alone; otherwise the first one ends the task.
    :param judged: result of a first pass; None if this is the first.
    """

    fields: tuple[Field, ...]
    key: tuple[str, ...]
    format: str
    target: Target
    reading: Reading
    keyed: bool = True
    schema: tuple[Field, ...] | None = None
    rejects: bool = False
    sets_aside: bool = False
    judged: Judged | None = None

    def __post_init__(self) -> None:
        # tasks do not need the registry, which may contain a password
        object.__setattr__(self, "reading", replace(self.reading, registry=None))

    @property
    def traits(self) -> Format:
        return find_format(self.format)

    @property
    def known_names(self) -> frozenset[str]:
        """Return the names of the table's columns and of excluded source columns."""
        return frozenset((*(f.name for f in self.fields), *self.target.exclude_columns))

    @property
    def large_fields(self) -> tuple[Field, ...]:
        """Return the columns whose values a message may replace by a placeholder."""
        return tuple(f for f in self.fields if f.is_large) if self.traits.placeholders else ()

    def with_schema(self, schema: tuple[Field, ...]) -> Decoding:
        """Return the options for messages with a schema.

        :raises SchemaError: it has a column that the table lacks, lacks a key column, or has a column of another
            type or of an unknown encoding.
        """
        target = self.target
        changed = outgrown(self.fields, schema, target.columns)
        if changed:
            raise SchemaError(f"another type of the column {changed}")
        seen = {f.name: f for f in schema}
        known = self.known_names
        new = [name for name in seen if name not in known]
        missing = [name for name in self.key if name not in seen and name != target.source_column]
        if new or missing or len(seen) < len(schema):
            raise SchemaError(f"a new column {new[0]}" if new else "a schema without the key")
        fields = tuple(self._written(column, seen.get(column.name)) for column in self.fields)
        return replace(self, fields=fields, schema=schema)

    def _written(self, column: Field, of_schema: Field | None) -> Field:
        """Return a column with its encoding in messages of a schema."""
        field = of_schema.with_type(column.type) if of_schema else column
        encoding = self.target.encodings.get(column.name)
        field = field.with_encoding(encoding) if encoding else field
        if not field.column_type.has_parser:
            raise SchemaError(f"column {field.name} ({field.type}, {field.encoding})")
        return field

    def with_names(self, messages: pa.RecordBatch) -> Decoding:
        """Return the options with the names for column numbers, from the first messages."""
        if not self.traits.many_rows:
            return self
        names = {f.name: f for f in first_types(messages, self) if f.names}
        fields = tuple(names[f.name].with_type(f.type) if f.name in names else f for f in self.fields)
        return replace(self, fields=fields)

    def is_own(self, source_table: str, topic: str | None = None) -> bool:
        return feeds(self.target, source_table, (topic,) if self.reading.routed and topic else ())
