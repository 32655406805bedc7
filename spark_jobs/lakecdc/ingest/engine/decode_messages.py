"""Decode messages in two passes: find out which tables and columns they have, then decode those of one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoded import Decoded, Known, Request
from lakecdc.ingest.engine.decoding import Decoding, Judged
from lakecdc.ingest.engine.envelope_reader import EnvelopeReader, envelope_frame, lone_tombstones
from lakecdc.ingest.engine.message_facts import MessageFacts, collect_message_facts, combined
from lakecdc.ingest.engine.run import EngineResult, SecondPassError, judge_events
from lakecdc.ingest.engine.source_tables import choose, feeds, is_mine, only_source, topics_of
from lakecdc.ingest.engine.table_fields import encodings_of, fields_of, followed, key_columns, message_key
from lakecdc.ingest.formats import find_format
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.message_columns import PLACED
from lakecdc.ingest.formats.values import Field, merge_fields


@dataclass(frozen=True)
class TableMessages:
    """Messages for one table, and their facts.

    :param target: with its key.
    :param by_table: facts of the messages of each source table.
    :param mine: facts of the source tables that feed the table.
    :param chosen: ``mine``, and facts of other messages that belong to the table.
    :param total: ``chosen`` combined.
    :param topics: topics of the table's events.
    :param fields: the table's columns; only its key columns if ``has_columns`` is false.
    :param encoded: see :class:`lakecdc.ingest.engine.decoding.Judged`.
    """

    messages: DataFrame
    reader: EnvelopeReader
    target: Target
    by_table: Sequence[MessageFacts]
    mine: Sequence[MessageFacts]
    chosen: Sequence[MessageFacts]
    total: MessageFacts
    topics: frozenset[str]
    fields: tuple[Field, ...] = ()
    encoded: Mapping[str, Mapping[str, Field]] = field(default_factory=dict)
    has_columns: bool = False

    @property
    def has_messages(self) -> bool:
        """Check whether any message belongs to the table."""
        has_tombstones = find_format(self.reader.format).tombstones and self.total.tombstones
        return bool(self.total.events or self.total.facts.rejected or has_tombstones)


def find_table_messages(messages: DataFrame, request: Request, besides: EngineResult | None = None) -> TableMessages:
    """Find out which messages belong to a table, and which columns it has.

    :param besides: result for the batch's other messages; None if these are all.
    :raises SecondPassError: the messages cannot be judged without the others.
    :raises InputError: table or columns of the events are unclear.
    """
    target, reading, known = request.target, request.reading, request.known
    reader = EnvelopeReader(request.format, reading, target.columns, fold_case=target.fold_case)
    by_table = collect_message_facts(messages, reader, keys=not target.key)
    if besides is not None:
        _refuse_apart(by_table, target, besides, routed=reading.routed)
    mine = choose(target, [s for s in by_table if s.source_table and s.events], routed=reading.routed)
    others = [s for s in by_table if s.source_table and s.events and s not in mine]
    topics = (besides.topics if besides else frozenset()).union(*(s.topics for s in mine))
    rest = [
        s for s in by_table if s not in [*mine, *others] and is_mine(s, target, topics, others, adopt=request.adopt)
    ]
    chosen = [*mine, *rest]
    own = TableMessages(messages, reader, target, by_table, mine, chosen, combined(chosen), topics)
    if not own.has_messages:
        return replace(own, target=replace(target, key=target.key or known.key))
    types = followed(known.types, [f for fields in own.total.schemas.values() for f in fields], target)
    seen = merge_fields(s.fields for s in chosen)
    are_rows = bool(own.total.facts.high_orders)
    if are_rows and not (seen or types):
        # deletes with only the keys of their messages
        names = {s.source_table for s in chosen}
        with_keys = collect_message_facts(messages, reader, keys=True) if target.key else by_table
        seen = merge_fields(s.key for s in with_keys if s.source_table in names)
    # without a row, a new table's columns are unknown, and there is no table to empty
    if not (types or (are_rows and seen)):
        return replace(own, fields=tuple(Field(c.name, c.type) for c in key_columns(target)))
    target = replace(target, key=target.key or message_key(target, mine, known.key))
    there = besides.fields if besides else ()
    names = {f.name for f in there}
    fields = fields_of(target, (*there, *(f for f in seen if f.name not in names)), types)
    _refuse_types(fields, target)
    encoded = encodings_of(fields, own.total.schemas, target, types)
    return replace(own, target=target, fields=fields, encoded=encoded, has_columns=True)


def decode_messages(own: TableMessages, request: Request) -> Decoded:
    """Decode messages of any kind to changes of one table."""
    target, total, mine, reading = own.target, own.total, own.mine, request.reading
    if not own.has_messages:
        others = {str(s.source_table) for s in own.by_table if s.source_table and s.events and s not in mine}
        return Decoded(key_columns(target), target.key, others=tuple(sorted(others)))
    source_tables = frozenset(s.source_table for s in own.chosen)
    decoding = Decoding(
        own.fields,
        target.key,
        request.format,
        target,
        reading,
        rejects=True,
        judged=Judged(own.reader.read, source_tables, own.encoded),
    )
    folds = request.folds and bool(target.key) and own.has_columns
    void_below = total.truncate_order if target.on_truncate == "apply" else None
    last = mine[0].last_schema if len(mine) == 1 else ()
    placed = _with_placed(own, reading, request.known)
    result = judge_events(placed, decoding, request, folds=folds, void_below=void_below)
    return Decoded(
        tuple(f.column for f in own.fields),
        target.key,
        result.rows if own.has_columns else None,
        replace(result.rejected, unreadable=total.facts.rejected) if result.rejected else None,
        total.truncate_order,
        total.facts.newest_moment,
        total.events,
        total.facts.high_orders,
        source_columns=tuple(f.name for f in last if f.name not in target.exclude_columns),
        stretches=total.facts.stretches,
        source_table=only_source(target, [str(s.source_table) for s in mine], own.topics),
    )


def _with_placed(own: TableMessages, reading: Reading, known: Known) -> DataFrame:
    """Return the messages, and again the tombstones that are deletes, each with its order key."""
    of_tombstones = topics_of(own.target, own.chosen, own.by_table)
    has_tombstones = find_format(own.reader.format).tombstones and any(s.tombstones for s in own.by_table)
    if not (own.has_columns and has_tombstones and own.target.key and of_tombstones):
        return own.messages
    of_mine = envelope_frame(own.messages, own.reader).where(F.col("topic").isin(of_tombstones))
    lone = lone_tombstones(of_mine, known.marks, known.high_order, reading)
    if lone is None:
        return own.messages
    return own.messages.withColumn(PLACED, F.lit(None).cast("string")).unionByName(lone)


def _refuse_apart(odd: Sequence[MessageFacts], target: Target, besides: EngineResult, *, routed: bool) -> None:
    """Check that odd messages are judged as among all messages of the batch.

    :param odd: their facts, by source table.
    :param routed: the source routes their topics to the target.
    :raises SecondPassError: they may not be: they are of another table while none is named, have other
        schemas, delete by tombstones, or are unreadable and in topics that may be another table's.
    """
    named = [s for s in odd if s.source_table and s.events]
    mine = [s for s in named if feeds(target, str(s.source_table), s.topics if routed else ())]
    others = [s for s in named if s not in mine]
    topics = besides.topics.union(*(s.topics for s in mine))
    if (
        len({s.source_table for s in mine}.union(besides.rows.facts.tables)) > 1
        or any(s.tombstones for s in odd)
        or any(columns != besides.schema for s in odd if s not in others for columns in s.schemas.values())
        or any(s.facts.rejected and not s.events and not s.topics <= topics for s in odd)
    ):
        raise SecondPassError(str(besides.rows.facts.why))


def _refuse_types(fields: Sequence[Field], target: Target) -> None:
    for one in fields:
        if not one.column_type.has_parser:
            raise InputError(
                f"Column {one.name!r} has the type {one.type}, which messages cannot fill.",
                table=target.table,
                hint='Give it another type in the target\'s "columns", or exclude it.',
            )
