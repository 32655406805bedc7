"""Decode messages one by one: messages chosen, columns found and typed, misfits set apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.ingest.formats import find_format
from lakecdc.ingest.formats.asides import Besides, refuse_apart
from lakecdc.ingest.formats.changes import union
from lakecdc.ingest.formats.decoded import Decoded
from lakecdc.ingest.formats.envelope_frame import envelope_frame, in_json
from lakecdc.ingest.formats.envelope_reader import EnvelopeReader
from lakecdc.ingest.formats.event_rows import Typing, type_events
from lakecdc.ingest.formats.lone_tombstones import placed
from lakecdc.ingest.formats.source_tables import choose, is_mine, only_source, shards_mix, topics_of
from lakecdc.ingest.formats.survey import survey
from lakecdc.ingest.formats.table_fields import encodings_of, fields_of, followed, key_columns, message_key
from lakecdc.ingest.formats.values import Field, merge_fields
from lakecdc.ingest.order import highest, joined

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.contract.target import Target
    from lakecdc.ingest.formats.decoded import Known
    from lakecdc.ingest.formats.envelope import Reading


def decode_messages(
    messages: DataFrame,
    format_name: str,
    target: Target,
    reading: Reading,
    known: Known,
    *,
    adopt: bool,
    besides: Besides | None = None,
) -> Decoded:
    """Decode messages of any kind into changes of one table.

    :param besides: what is known of the batch's other messages; None if these are all.
    :raises ApartError: if they cannot be judged without the others.
    """
    read = find_format(format_name)
    reader = EnvelopeReader(format_name, reading, target.columns, fold_case=target.fold_case)
    messages = in_json(messages, format_name, reading)
    found = survey(messages, reader, keys=not target.key)
    if besides is not None:
        refuse_apart(found, target, besides, routed=reading.routed)
    besides = besides or Besides()
    mine = choose(target, [s for s in found if s.source_table and s.events], routed=reading.routed)
    others = [s for s in found if s.source_table and s.events and s not in mine]
    topics = besides.topics.union(*(s.topics for s in mine))
    chosen = [
        *mine,
        *(s for s in found if s not in [*mine, *others] and is_mine(s, target, topics, others, adopt=adopt)),
    ]
    if not any(s.events or s.problems or (read.tombstones and s.tombstones) for s in chosen):
        target = replace(target, key=target.key or known.key)
        return Decoded(key_columns(target), target.key, others=tuple(sorted({str(s.source_table) for s in others})))
    schemas = [f for s in chosen for fields in s.schemas.values() for f in fields]
    known = replace(known, types=followed(known.types, schemas, target))
    seen = merge_fields(s.fields for s in chosen)
    are_rows = any(s.high_orders for s in chosen)
    if are_rows and not (seen or known.types):
        # deletes that have nothing but the keys of their messages
        names = {s.source_table for s in chosen}
        seen = merge_fields(s.key for s in survey(messages, reader, keys=True) if s.source_table in names)
    # without a row, nothing tells what a new table looks like, and there is none that could be emptied
    told = bool(known.types or (are_rows and seen))
    if told:
        target = replace(target, key=target.key or message_key(target, mine, known.key))
        there = {f.name for f in besides.fields}
        fields = fields_of(target, (*besides.fields, *(f for f in seen if f.name not in there)), known.types)
    else:
        fields = tuple(Field(c.name, c.type) for c in key_columns(target))
    marks = None if shards_mix(target) else known.marks
    encoded = encodings_of(fields, chosen, target, known.types)
    tables = frozenset(s.source_table for s in chosen)
    _refuse_types(fields, target)
    typing = Typing(fields, target.key, tables, marks, target.source_column, encoded)
    frames = [type_events(messages, reader, typing)]
    of_tombstones = topics_of(target, chosen, found)
    if told and read.tombstones and any(s.tombstones for s in found) and target.key and of_tombstones:
        of_mine = envelope_frame(messages, reader).where(F.col("topic").isin(of_tombstones))
        lone = placed(of_mine, known.marks, known.high_order, reading)
        if lone is not None:
            frames.append(type_events(lone, reader, typing))
    # one decoding serves the fold, the history, look-ups of placeholders and the quarantine
    both = union(frames).persist()
    rejections, accepted = both.agg(F.count("rejected"), F.count_if(F.col("rejected").isNull())).collect()[0]
    changes = both.where("rejected IS NULL").drop("rejected")
    return Decoded(
        tuple(f.column for f in fields),
        target.key,
        (changes if marks is not None else changes.drop("late")) if told else None,
        both.where("rejected IS NOT NULL").select("rejected.*") if rejections else None,
        rejections,
        accepted,
        max((s.truncate_order for s in chosen if s.truncate_order), default=None),
        max((s.newest for s in chosen if s.newest), default=None),
        sum(s.events for s in chosen),
        sum(s.problems for s in chosen),
        highest(pair for s in chosen for pair in s.high_orders.items()),
        told=tuple(n for n in mine[0].told if n not in target.exclude_columns) if len(mine) == 1 else (),
        stretches=joined(s.stretches for s in chosen),
        source_table=only_source(target, [str(s.source_table) for s in mine], topics),
    )


def _refuse_types(fields: Sequence[Field], target: Target) -> None:
    """Refuse columns whose type no message can fill.

    :raises InputError: there is one.
    """
    for one in fields:
        if not one.column_type.has_parser:
            raise InputError(
                f"Column {one.name!r} has the type {one.type}, which messages cannot fill.",
                table=target.table,
                hint='Give it another type in the target\'s "columns", or exclude it.',
            )
