"""Decode messages to the changes of one table: in one pass if they match the table, else in two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, reduce
from operator import add

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decode_messages import TableMessages, decode_messages, find_table_messages
from lakecdc.ingest.engine.decoded import Decoded, Known, Request
from lakecdc.ingest.engine.decoding import Decoding
from lakecdc.ingest.engine.envelope_reader import EnvelopeReader, envelope_frame
from lakecdc.ingest.engine.message_facts import collect_message_facts, message_facts
from lakecdc.ingest.engine.pieces import OddTextError
from lakecdc.ingest.engine.run import EngineResult, SecondPassError, decode_at_once
from lakecdc.ingest.engine.source_tables import feeds, only_source
from lakecdc.ingest.engine.table_fields import target_fields, typed_field
from lakecdc.ingest.envelopes.debezium import ROW_OPS
from lakecdc.ingest.formats import find_format
from lakecdc.ingest.formats.changes import REJECTED
from lakecdc.ingest.formats.debezium_avro import read_schemas
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.messages import Messages
from lakecdc.ingest.formats.values import Field, merge_fields
from lakecdc.model.order import EVENT_DIGITS

# number of first messages that define the columns of a new table
_SAMPLE = 5_000


def decode(
    messages: Messages, format_name: str, target: Target, reading: Reading, known: Known, *, adopt: bool = True
) -> Decoded:
    """Decode a batch for one table.

    :param messages: returns the message frame; not called if tasks read the messages directly.
    :param adopt: whether this table rejects messages of no known source table (such as text that is not JSON).
    :return: the changes; the caller clears Spark's cache when the batch is done.
    :raises InputError: table or columns of the events are unclear; nothing is written.
    """
    messages = cache(messages)
    reading = replace(reading, only_added=target.mode == "append")
    if reading.registry is not None:
        rows, read = (known.scan.input(), known.scan.read) if known.scan else (messages(), None)
        reading = replace(reading, schemas=read_schemas(reading.registry, rows, read))
    decoded = _BatchDecoder(messages, Request(format_name, target, reading, known, adopt)).decode()
    return replace(decoded, origin=_origin(messages, format_name, reading))


def _origin(messages: Messages, format_name: str, reading: Reading) -> Callable[[DataFrame], DataFrame]:
    """Return a function that finds the messages of a few events again."""

    def find(events: DataFrame) -> DataFrame:
        reader = EnvelopeReader(format_name, reading, ())
        envelopes = envelope_frame(messages(), reader).where(F.col("op").isin(*ROW_OPS))
        at_place = F.substring("order", 1, EVENT_DIGITS) == F.substring("asked", 1, EVENT_DIGITS)
        matches = envelopes.join(F.broadcast(events.withColumnRenamed("order", "asked")), at_place)
        # the engines count the records of a file in different ways
        return matches.where("order = asked OR topic IS NULL").select("asked", *REJECTED[:-1])

    return find


def check_fields(fields: Sequence[Field]) -> None:
    """Check that events with these columns can be decoded in one pass.

    :raises SecondPassError: they cannot.
    """
    for one in fields:
        if not one.column_type.has_parser:
            raise SecondPassError(f"column {one.name} ({one.type}, {one.encoding})")


class _BatchDecoder:
    """Decode one batch for one table; see :func:`decode`."""

    def __init__(self, messages: Messages, request: Request) -> None:
        self._messages, self._request = messages, request
        self._format, self._target, self._known = request.format, request.target, request.known

    def decode(self) -> Decoded:
        """Decode the batch, with a second pass if needed."""
        try:
            return self._decode_at_once()
        except SecondPassError as needed:
            decoded = decode_messages(find_table_messages(self._messages(), self._request), self._request)
            return replace(decoded, passes=f"two passes: {needed}")

    def _decode_at_once(self) -> Decoded:
        """Decode messages that match the table.

        :raises SecondPassError: some do not.
        """
        fields = self._expected_fields()
        result, decoded, aside = self._attempt(fields)
        seen = _extended(fields, aside.fields) if aside is not None and aside.total.events else fields
        if seen != fields:
            # with the new columns, tasks can decode most messages that were set aside
            result.rows.release()
            result, decoded, aside = self._attempt(seen)
        if aside is None:
            return decoded
        facts = result.rows.facts
        leaves_out = result.rows.folded and facts.leaves_out
        if aside.total.events or (leaves_out and aside.total.facts.rejected):
            # such an event may be newer than the last event of its key, complete it, or precede it
            result.rows.release()
            raise SecondPassError(str(facts.why))
        odd = decode_messages(aside, self._request)
        rejected = [one for one in (decoded.rejected, odd.rejected) if one is not None]
        return replace(
            decoded,
            rejected=reduce(add, rejected) if rejected else None,
            newest=max((n for n in (decoded.newest, odd.newest) if n is not None), default=None),
            passes=f"one pass, then another over {facts.aside} of the messages: {facts.why}",
        )

    def _attempt(self, fields: tuple[Field, ...]) -> tuple[EngineResult, Decoded, TableMessages | None]:
        """Decode the batch in tasks, and collect the messages that they set aside; None if there are none."""
        result = decode_at_once(self._messages, self._decoding(fields), self._request)
        aside = None if result.aside is None else find_table_messages(result.aside, self._request, result)
        return result, self._plain(result), aside

    def _expected_fields(self) -> tuple[Field, ...]:
        """Return the columns that the table's messages should have.

        :raises SecondPassError: they are unknown before a first pass.
        """
        target = self._target
        if target.fold_case:
            raise SecondPassError("fold_case")
        if target.on_dropped_column != "keep" and (target.source_tables or not find_format(self._format).whole):
            raise SecondPassError("on_dropped_column")
        fields = self._fields_before()
        check_fields(fields)
        if target.keyed and not self._request.key:
            raise SecondPassError("the key is in the messages")
        if not fields or not {*self._request.key} <= {f.name for f in fields}:
            raise SecondPassError("the key columns are unknown yet")
        return fields

    def _decoding(self, fields: tuple[Field, ...]) -> Decoding:
        """Return how messages are read in one pass."""
        request, scan = self._request, self._known.scan
        return Decoding(
            fields,
            request.key,
            request.format,
            request.target,
            request.reading,
            keyed=scan is None or scan.keyed,
            # the columns of a new table are those of all its messages
            rejects=bool(self._known.types),
            # a message with some odd rows would be decoded twice
            sets_aside=bool(self._known.types) and not find_format(self._format).many_rows,
        )

    def _plain(self, result: EngineResult) -> Decoded:
        facts, excluded = result.rows.facts, self._target.exclude_columns
        events = facts.row_events
        return Decoded(
            tuple(f.column for f in result.fields),
            self._request.key,
            newest=facts.newest_moment,
            events=events,
            rows=None if events == facts.rejected else result.rows,
            rejected=result.rejected,
            high_orders=facts.read_orders,
            stretches=facts.stretches,
            source_table=only_source(self._target, facts.tables, result.topics),
            source_columns=tuple(f.name for f in result.schema or () if f.name not in excluded) if events else (),
        )

    def _fields_before(self) -> tuple[Field, ...]:
        """Return the table's columns; for a new table, those of the first messages."""
        target, known = self._target, self._known
        seen = tuple(Field(name, kind) for name, kind in known.types.items()) or self._sampled()
        return tuple(typed_field(f, target, known.types) for f in target_fields(seen, target)) if seen else ()

    def _sampled(self) -> tuple[Field, ...]:
        """Return the columns of the first messages; empty if these are of several other tables."""
        target, scan, reading = self._target, self._known.scan, self._request.reading
        reader = EnvelopeReader(self._format, reading, target.columns)
        try:
            by_table = message_facts(scan.first_values(_SAMPLE), reader) if scan and scan.reads_here else None
        except OddTextError:
            # Spark splits these lines differently
            by_table = None
        if by_table is None:
            by_table = collect_message_facts(self._messages().limit(_SAMPLE), reader)
        mine = [
            s
            for s in by_table
            if s.events and (not s.source_table or feeds(target, s.source_table, s.topics if reading.routed else ()))
        ]
        many = len([s for s in mine if s.source_table]) > 1 and not target.source_tables
        return () if many else merge_fields(s.fields for s in mine)


def _extended(fields: Sequence[Field], columns: Sequence[Field]) -> tuple[Field, ...]:
    """Return a table's columns with the types of others, and add the missing ones."""
    types = {c.name: c.type for c in columns}
    known = tuple(f.with_type(types[f.name]) if types.get(f.name, f.type) != f.type else f for f in fields)
    names = {f.name for f in fields}
    return (*known, *(Field(c.name, c.type) for c in columns if c.name not in names))
