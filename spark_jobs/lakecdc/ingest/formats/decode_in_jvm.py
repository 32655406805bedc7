"""Decoding in the JVM: messages chosen, columns found and typed, misfits set apart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest.formats import find_format
from lakecdc.ingest.formats.asides import Besides, refuse_apart
from lakecdc.ingest.formats.changes import Typing, decoded, only_deletes, union
from lakecdc.ingest.formats.decoded import Decoded
from lakecdc.ingest.formats.fold_case import folding
from lakecdc.ingest.formats.lone_tombstones import placed
from lakecdc.ingest.formats.source_tables import choose, is_mine, of_tables, only_source, shards_mix, topics_of
from lakecdc.ingest.formats.survey import merge_fields, survey
from lakecdc.ingest.formats.table_fields import encodings_of, fields_of, followed, key_columns, message_key
from lakecdc.ingest.formats.values import Field
from lakecdc.ingest.order import highest, joined

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.contract.target import Target
    from lakecdc.ingest.formats.decoded import Known
    from lakecdc.ingest.formats.envelope import Format, Reading
    from lakecdc.ingest.formats.survey import Survey

#: ops of row events
ROWS = ("r", "c", "u", "d")


def decode_in_jvm(
    messages: DataFrame,
    format_name: str,
    target: Target,
    reading: Reading,
    known: Known,
    *,
    adopt: bool,
    besides: Besides | None = None,
) -> Decoded:
    """Decode messages in the JVM.

    :param besides: what is known of the batch's other messages; None if these are all.
    :raises ApartError: if they cannot be judged without the others.
    """
    read = find_format(format_name)
    if target.fold_case:
        read = folding(read)
    envelopes = read.envelopes(messages, reading)
    envelopes, found = _surveyed(envelopes, read, target)
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
        seen = merge_fields(s.key for s in survey(envelopes.where(of_tables(chosen)), read))
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
    typing = Typing(fields, target.key, read, reading, marks, target.source_column, encoded)
    envelopes = envelopes.where(of_tables(chosen))
    rows = envelopes.where(F.col("op").isin(*ROWS) | F.col("problem").isNotNull())
    frames = [decoded(rows, typing)]
    of_tombstones = topics_of(target, chosen, found)
    if told and read.tombstones and any(s.tombstones for s in found) and target.key and of_tombstones:
        of_mine = read.envelopes(messages, reading).where(F.col("topic").isin(of_tombstones))
        lone = placed(of_mine, known.marks, known.high_order, reading)
        if lone is not None:
            frames.append(only_deletes(lone, typing))
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


def _surveyed(envelopes: DataFrame, read: Format, target: Target) -> tuple[DataFrame, list[Survey]]:
    """The envelopes and what is known of them; those whose schemas are not to be believed are read no further."""
    found = survey(envelopes, read, keys=not target.key)
    texts = dict.fromkeys(text for one in found for text in one.schemas)
    reasons = {text: why for text in texts if (why := read.doubted_of(text, target.columns))}
    if not reasons:
        return envelopes, found
    told = F.try_element_at(F.create_map(*[F.lit(x) for pair in reasons.items() for x in pair]), F.col("schema"))
    believed = envelopes.withColumn("problem", F.coalesce("problem", told))
    believed = believed.withColumn("op", F.when(F.col("problem").isNull(), F.col("op")))
    return believed, survey(believed, read, keys=not target.key)
