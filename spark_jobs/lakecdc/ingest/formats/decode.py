"""From messages to the changes of one table: choose its messages, find its columns, type them, set misfits apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.ingest.change import Column
from lakecdc.ingest.formats import find_format, native
from lakecdc.ingest.formats.asides import ApartError, Besides, alone, together
from lakecdc.ingest.formats.changes import REJECTED, Typing, decoded, only_deletes, union
from lakecdc.ingest.formats.lone_tombstones import placed
from lakecdc.ingest.formats.survey import Survey, merge_fields, survey
from lakecdc.ingest.formats.values import Field
from lakecdc.ingest.order import EVENT_DIGITS

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

    from lakecdc.contract.target import Target
    from lakecdc.ingest.formats.envelope import Reading
    from lakecdc.ingest.formats.messages import Messages

# formats whose schemas tell all columns, to the native engine as well
_WITH_SCHEMAS = ("debezium-json", "debezium-avro")
_ROWS = ("r", "c", "u", "d")
# messages that tell the columns of a new table, to begin with
_SAMPLE = 5_000


@dataclass(frozen=True)
class Known:
    """What is known of a table before a batch.

    :param types: Spark SQL types of the target's columns by name; empty if there is no table yet.
    :param marks: highest order key applied by ``topic/partition``; None where they cannot be trusted, so that the
        table's highest order key decides which events are late.
    :param high_order: highest order key applied.
    :param engine: ``jvm``, or ``auto`` to try the faster native one first.
    :param scan: how the native engine's tasks read the batch's messages by themselves; None if Spark reads them.
    :param partition_by: partition transforms of the target in SQL.
    """

    types: Mapping[str, str]
    marks: Mapping[str, str] | None = None
    high_order: str | None = None
    engine: str = "auto"
    scan: native.Scan | None = None
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decoded:
    """The messages of a batch as changes of one table.

    :param columns: the table's columns; only its key if the batch has no event of it.
    :param key: its key columns, the target's or else those of the messages' keys.
    :param changes: the change frame, persisted; None if there is no event.
    :param rejected: messages that cannot be applied (``changes.REJECTED``); None if there are none.
    :param rejections: how many.
    :param accepted: rows of ``changes``, if the JVM has decoded them.
    :param truncate_order: order key of the last TRUNCATE.
    :param newest: source time of the newest event.
    :param events: row events and TRUNCATEs.
    :param high_orders: highest order key of the batch by ``topic/partition``.
    :param newest_orders: order key of its first change with the newest source time by ``topic/partition``.
    :param folded: ``changes`` has one row per key, with event counts ``n_r`` to ``n_d``.
    :param engine: what decoded the batch, ``native``, or ``jvm`` and why, or both with how many messages and why.
    :param told: all columns that the source has, as the last schema tells; empty if none does.
    :param origin: finds the messages of events again; see :class:`lakecdc.ingest.change.TableBatch`.
    :param packed: the batch as the native engine's tasks have made it.
    :param again: decodes a folded batch once more, every event of it.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    changes: DataFrame | None = None
    rejected: DataFrame | None = None
    rejections: int = 0
    accepted: int = 0
    truncate_order: str | None = None
    newest: datetime | None = None
    events: int = 0
    high_orders: Mapping[str, str] | None = None
    folded: bool = False
    engine: str = "jvm"
    packed: native.Packed | None = None
    origin: Callable[[DataFrame], DataFrame] | None = None
    told: tuple[str, ...] = ()
    newest_orders: Mapping[str, str] | None = None
    again: Callable[[], Decoded] | None = None


def decode(
    messages: Messages, format_name: str, target: Target, reading: Reading, known: Known, *, adopt: bool = True
) -> Decoded:
    """Decode a batch for one table.

    :param messages: makes the message frame; not called if the native engine's tasks read them by themselves.
    :param format_name: name of the format.
    :param known: what is known of the table.
    :param adopt: whether messages of no known source table (such as text that is no JSON) are this table's to reject.
    :return: the changes; the caller clears Spark's cache when the batch is done.
    :raises InputError: if the events do not tell which table or columns are meant; nothing has been written then.
    """
    messages = cache(messages)
    made = _try_native(messages, format_name, target, reading, known, adopt=adopt)
    if isinstance(made, str):
        in_jvm = _decode_in_jvm(messages(), format_name, target, reading, known, adopt=adopt)
        made = replace(in_jvm, engine=f"jvm: {made}")
    origin = _origin(messages, format_name, reading)
    if not made.folded:
        return replace(made, origin=origin)
    by_jvm = replace(known, engine="jvm")
    again = partial(decode, messages, format_name, target, reading, by_jvm, adopt=adopt)
    return replace(made, origin=origin, again=again)


def _origin(messages: Messages, format_name: str, reading: Reading) -> Callable[[DataFrame], DataFrame]:
    """How the messages of events are found again, for the few of which that is wanted."""

    def find(events: DataFrame) -> DataFrame:
        envelopes = find_format(format_name).envelopes(messages(), reading).where(F.col("op").isin(*_ROWS))
        at_place = F.substring("order", 1, EVENT_DIGITS) == F.substring("asked", 1, EVENT_DIGITS)
        found = envelopes.join(F.broadcast(events.withColumnRenamed("order", "asked")), at_place)
        # the engines count the records of a file in different ways
        return found.where("order = asked OR topic IS NULL").select("asked", *REJECTED)

    return find


def _try_native(
    messages: Messages, format_name: str, target: Target, reading: Reading, known: Known, *, adopt: bool
) -> Decoded | str:
    """What the native engine makes of a batch, the JVM of what is odd in it; or why all of it is the JVM's."""
    if known.engine != "auto":
        return "asked for"
    if target.on_dropped_column != "keep" and (target.source_tables or format_name not in _WITH_SCHEMAS):
        return "on_dropped_column"
    prepared = None
    to_json = find_format(format_name).in_json
    if to_json is not None:
        prepared = to_json(messages(), reading)
        if prepared is None:
            return "records that are not of one schema of a registry"
    fields = _fields_before(messages, format_name, target, reading, known, prepared.told if prepared else None)
    reason = native.refusal(format_name, fields, target.key)
    if reason is None and not set(target.key) <= {f.name for f in fields}:
        reason = "the key columns are not known yet"
    if reason is not None:
        return reason
    every = not target.keyed or bool(target.history_table)

    def run(*, events_needed: bool) -> native.Native:
        return native.decode_native(
            (lambda: prepared.messages) if prepared else messages,
            format_name,
            fields,
            target.key,
            target.source_table,
            reading,
            None if _shards_mix(target) else known.marks,
            events_needed=events_needed,
            # the columns of a new table are those of all its messages
            sets_aside=bool(known.types),
            ignored=target.exclude_columns,
            encodings=target.encodings,
            told=prepared.told if prepared else None,
            scan=None if prepared else known.scan,
            partition_by=known.partition_by,
            wants=target.wants if target.source_tables else None,
            source_column=target.source_column,
        )

    made = run(events_needed=every)
    if made.reason is not None:
        return made.reason
    told = {f.name for f in made.schema or fields} | {target.source_column}
    fields = tuple(f for f in made.fields if f.name in told)
    found = Decoded(
        tuple(f.column for f in fields),
        target.key,
        made.changes if made.events else None,
        newest=made.newest,
        events=made.events,
        high_orders=made.high_orders,
        newest_orders=made.newest_orders,
        folded=made.folded,
        engine="native",
        packed=made.packed if made.events else None,
        told=tuple(f.name for f in made.schema or () if f.name not in target.exclude_columns) if made.events else (),
    )
    if made.aside is None:
        return found
    topics = frozenset(place.rpartition("/")[0] for place in made.high_orders or {})
    besides = Besides(fields, made.tables, topics, made.schema)
    try:
        odd = _decode_in_jvm(made.aside, format_name, target, reading, known, adopt=adopt, besides=besides)
    except ApartError:
        return str(made.why)
    if made.folded and (odd.accepted or odd.truncate_order):
        # the last event of a key is not enough: an odd one may be newer, or complete it
        made = run(events_needed=True)
    return together(replace(found, engine=f"native, {made.asides} messages in the jvm: {made.why}"), odd, made)


def _fields_before(
    messages: Messages,
    format_name: str,
    target: Target,
    reading: Reading,
    known: Known,
    told: tuple[Field, ...] | None,
) -> tuple[Field, ...]:
    """The columns as the table has them; of a new table, those of the first messages.

    :param told: columns of the schema of all messages, if it is known.
    """
    own = (ORDER_COLUMN, TIME_COLUMN)
    if known.types:
        seen = tuple(Field(name, kind) for name, kind in known.types.items() if name not in own)
    elif told is not None:
        seen = told
    elif native.reads(format_name):
        seen = _sampled(messages, format_name, target, reading, known)
    else:
        seen = ()
    return tuple(_typed(f, target, known.types) for f in _wanted(seen, target)) if seen else ()


def _sampled(messages: Messages, format_name: str, target: Target, reading: Reading, known: Known) -> tuple[Field, ...]:
    """The columns that the first messages tell; none if these are of several tables that are not wanted together."""
    if known.scan:
        sampled = known.scan.fields(_SAMPLE, format_name, partial(_feeds, target), shards=bool(target.source_tables))
        if sampled is not None:
            return sampled
    read = find_format(format_name)
    found = survey(read.envelopes(messages().limit(_SAMPLE), reading), read)
    mine = [s for s in found if s.events and (not s.source_table or _feeds(target, s.source_table))]
    many = len([s for s in mine if s.source_table]) > 1 and not target.source_tables
    return () if many else merge_fields(s.fields for s in mine)


def _feeds(target: Target, source_table: str) -> bool:
    """Whether a source table is the target's, as far as the target says."""
    if target.source_table:
        return f".{source_table}".endswith(f".{target.source_table}")
    return not target.source_tables or target.wants(source_table)


def _shards_mix(target: Target) -> bool:
    """Whether a row may come from several shards, whose positions say nothing of each other's."""
    return bool(target.source_tables) and target.source_column not in target.key


def _decode_in_jvm(
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
    envelopes = read.envelopes(messages, reading)
    found = survey(envelopes, read, keys=not target.key)
    besides = alone(found, target, besides) if besides else Besides()
    mine = choose(target, [s for s in found if s.source_table and s.events])
    others = [s for s in found if s.source_table and s.events and s not in mine]
    topics = besides.topics.union(*(s.topics for s in mine))
    chosen = [
        *mine,
        *(s for s in found if s not in [*mine, *others] and _is_mine(s, target, topics, others, adopt=adopt)),
    ]
    if not any(s.events or s.problems or (read.tombstones and s.tombstones) for s in chosen):
        return Decoded(_key_columns(target), target.key)
    target = replace(target, key=target.key or _message_key(target, mine))
    seen = merge_fields(s.fields for s in chosen)
    there = {f.name for f in besides.fields}
    fields = _fields(target, (*besides.fields, *(f for f in seen if f.name not in there)), known.types)
    marks = None if _shards_mix(target) else known.marks
    encoded = _encoded(fields, chosen, target, known.types)
    typing = Typing(fields, target.key, read, reading, marks, target.source_column, encoded)
    envelopes = envelopes.where(_of_tables(chosen))
    rows = envelopes.where(F.col("op").isin(*_ROWS) | F.col("problem").isNotNull())
    frames = [decoded(rows, typing)]
    of_tombstones = _topics(target, chosen, found)
    if read.tombstones and any(s.tombstones for s in found) and target.key and of_tombstones:
        of_mine = read.envelopes(messages, reading).where(F.col("topic").isin(of_tombstones))
        lone = placed(of_mine, known.marks, known.high_order, reading)
        if lone is not None:
            frames.append(only_deletes(lone, typing))
    # one decoding serves the fold, the history, look-ups of placeholders and the quarantine
    both = union(frames).persist()
    rejections, accepted = both.agg(F.count("rejected"), F.count_if(F.col("rejected").isNull())).collect()[0]
    orders: dict[str, str] = {}
    for place, order in (pair for s in chosen for pair in s.high_orders.items()):
        orders[place] = max(order, orders.get(place, ""))
    changes = both.where("rejected IS NULL").drop("rejected")
    return Decoded(
        tuple(f.column for f in fields),
        target.key,
        changes if marks is not None else changes.drop("late"),
        both.where("rejected IS NOT NULL").select("rejected.*") if rejections else None,
        rejections,
        accepted,
        max((s.truncate_order for s in chosen if s.truncate_order), default=None),
        max((s.newest for s in chosen if s.newest), default=None),
        sum(s.events for s in chosen),
        orders,
        told=tuple(n for n in mine[0].told if n not in target.exclude_columns) if len(mine) == 1 else (),
        newest_orders={place: order for s in chosen for place, order in s.newest_orders.items()},
    )


def choose(target: Target, surveys: Sequence[Survey]) -> list[Survey]:
    """The source tables that feed a target.

    :raises InputError: if the events are of several tables and the target does not say which it wants.
    """
    if target.source_table or target.source_tables:
        return [s for s in surveys if _feeds(target, str(s.source_table))]
    if len(surveys) <= 1:
        return list(surveys)
    stem = target.table.rpartition(".")[2]
    own = [s for s in surveys if str(s.source_table).rpartition(".")[2] == stem]
    if len(own) == 1:
        return own
    raise InputError(
        f"The events are of several source tables: {', '.join(sorted(str(s.source_table) for s in surveys))}.",
        table=target.table,
        hint='Name the one to take as "source_table" in the target.',
    )


def _is_mine(one: Survey, target: Target, topics: frozenset[str], others: Sequence[Survey], *, adopt: bool) -> bool:
    """Whether messages without a row event are this table's: they come in a topic of its own, or in nobody else's.

    :param topics: of its events.
    """
    if not one.source_table:
        return adopt or bool(one.events)
    stem = (target.source_table or target.table).rpartition(".")[2]
    named = one.source_table.rpartition(".")[2] == stem
    elsewhere = bool(one.topics & {t for s in others for t in s.topics})
    return bool(one.topics & topics) or (named or adopt) and not elsewhere


def _topics(target: Target, chosen: Sequence[Survey], found: Sequence[Survey]) -> list[str]:
    """Topics whose tombstones are this table's: those of its events, or named like it and of nobody else's."""
    mine = {t for s in chosen for t in s.topics if s.source_table or s.events}
    others = {t for s in found if s not in chosen and s.source_table for t in s.topics}
    stem = (target.source_table or target.table).rpartition(".")[2]
    alike = {t for s in found for t in s.topics if t.rpartition(".")[2] == stem}
    return sorted((mine | alike) - others)


def _of_tables(chosen: Sequence[Survey]) -> Expression:
    names = [s.source_table for s in chosen if s.source_table]
    condition = F.col("source_table").isin(names) if names else F.lit(False)
    return condition | F.col("source_table").isNull() if any(s.source_table is None for s in chosen) else condition


def _fields(target: Target, seen: tuple[Field, ...], known: Mapping[str, str]) -> tuple[Field, ...]:
    """Columns with the types they are to have: the target's override, else the table's, else the derived one.

    :raises InputError: if a key column is nowhere to be seen.
    """
    wanted = _wanted(seen, target)
    absent = [Field(k, known[k]) for k in target.key if k in known and k not in {f.name for f in wanted}]
    overridden = [Field(k, target.columns[k]) for k in target.key if k in target.columns]
    names = {f.name for f in (*wanted, *absent)}
    fields = [*wanted, *absent, *(f for f in overridden if f.name not in names)]
    missing = sorted(set(target.key) - {f.name for f in fields})
    if missing:
        raise InputError(f"The key columns {missing} are not in the events.", table=target.table)
    return tuple(_typed(f, target, known) for f in fields)


def _wanted(seen: tuple[Field, ...], target: Target) -> list[Field]:
    """The columns that a target takes, and its own for the source table's name."""
    wanted = [f for f in seen if f.name not in target.exclude_columns]
    if target.source_column:
        return [*(f for f in wanted if f.name != target.source_column), Field(target.source_column, "string")]
    return wanted


def _typed(field: Field, target: Target, known: Mapping[str, str]) -> Field:
    encoding = target.encodings.get(field.name)
    sql_type = target.columns.get(field.name) or known.get(field.name) or field.type
    typed = field.with_type(sql_type)
    return typed.with_encoding(encoding) if encoding else typed


def _encoded(
    fields: Sequence[Field], chosen: Sequence[Survey], target: Target, known: Mapping[str, str]
) -> dict[str, dict[str, Field]]:
    """Columns that the batch's schemas write in different ways, such as decimals whose scale has changed."""
    wanted = {f.name: f for f in fields}
    found: dict[str, dict[str, Field]] = {}
    for text, seen in {text: seen for s in chosen for text, seen in s.schemas.items()}.items():
        for other in (f for f in seen if f.name in wanted):
            field = wanted[other.name]
            typed = replace(_typed(other, target, known), type=field.type)
            if typed != field:
                found.setdefault(other.name, {})[text] = typed
    return found


def _message_key(target: Target, mine: Sequence[Survey]) -> tuple[str, ...]:
    """Key columns as the messages' keys name them.

    :raises InputError: if a table that needs a key has none there.
    """
    if not target.keyed:
        return ()
    keys = {s.key for s in mine if s.key}
    if len(keys) != 1:
        raise InputError(
            "No key is given, and the messages' keys do not tell one.",
            table=target.table,
            hint='Add "key": ["column", …] to its target.',
        )
    return keys.pop()


def _key_columns(target: Target) -> tuple[Column, ...]:
    return tuple(Column(k, target.columns.get(k, "string")) for k in target.key)
