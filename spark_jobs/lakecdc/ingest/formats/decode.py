"""From messages to the changes of one table, with the native engine where it can, else in the JVM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest.formats import find_format, native
from lakecdc.ingest.formats.asides import ApartError, Besides, together
from lakecdc.ingest.formats.changes import REJECTED
from lakecdc.ingest.formats.decode_in_jvm import ROWS, decode_in_jvm
from lakecdc.ingest.formats.decoded import Decoded
from lakecdc.ingest.formats.source_tables import feeds, only_source, shards_mix
from lakecdc.ingest.formats.survey import merge_fields, survey
from lakecdc.ingest.formats.table_fields import typed_field, wanted_fields
from lakecdc.ingest.formats.values import Field
from lakecdc.ingest.order import EVENT_DIGITS, Marks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.contract.target import Target
    from lakecdc.ingest.formats.decoded import Known
    from lakecdc.ingest.formats.envelope import Reading
    from lakecdc.ingest.formats.messages import Messages

# formats whose schemas tell all columns, to the native engine as well
_WITH_SCHEMAS = ("debezium-json", "debezium-avro")
# messages that tell the columns of a new table, to begin with
_SAMPLE = 5_000


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
    reading = replace(reading, only_added=target.mode == "append")
    made = _try_native(messages, format_name, target, reading, known, adopt=adopt)
    if isinstance(made, str):
        in_jvm = decode_in_jvm(messages(), format_name, target, reading, known, adopt=adopt)
        made = replace(in_jvm, engine=f"jvm: {made}")
    origin = _origin(messages, format_name, reading)
    if not made.folded:
        return replace(made, origin=origin)
    again = partial(decode, messages, format_name, target, reading, replace(known, folds=False), adopt=adopt)
    return replace(made, origin=origin, again=again)


def _origin(messages: Messages, format_name: str, reading: Reading) -> Callable[[DataFrame], DataFrame]:
    """How the messages of events are found again, for the few of which that is wanted."""

    def find(events: DataFrame) -> DataFrame:
        envelopes = find_format(format_name).envelopes(messages(), reading).where(F.col("op").isin(*ROWS))
        at_place = F.substring("order", 1, EVENT_DIGITS) == F.substring("asked", 1, EVENT_DIGITS)
        found = envelopes.join(F.broadcast(events.withColumnRenamed("order", "asked")), at_place)
        # the engines count the records of a file in different ways
        return found.where("order = asked OR topic IS NULL").select("asked", *REJECTED[:-1])

    return find


def _try_native(
    messages: Messages, format_name: str, target: Target, reading: Reading, known: Known, *, adopt: bool
) -> Decoded | str:
    """What the native engine makes of a batch, the JVM of what is odd in it; or why all of it is the JVM's."""
    if known.engine != "auto":
        return "asked for"
    if target.fold_case:
        return "fold_case"
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
    folds = target.keyed and known.folds and not (target.history_table and target.clean)
    every = bool(target.history_table) or not folds

    def run(*, every: bool, folds: bool) -> native.Native:
        return native.decode_native(
            (lambda: prepared.messages) if prepared else messages,
            format_name,
            fields,
            target.key,
            target.source_name,
            reading,
            Marks(None if shards_mix(target) else known.marks, known.high_order),
            every=every,
            folds=folds,
            # the columns of a new table are those of all its messages
            sets_aside=bool(known.types),
            ignored=target.exclude_columns,
            encodings=target.encodings,
            told=prepared.told if prepared else None,
            scan=None if prepared else known.scan,
            partition_by=known.partition_by,
            wants=target.wants if target.source_tables else None,
            source_column=target.source_column,
            fixed=tuple(target.columns),
            named=target.source_table is not None,
        )

    made = run(every=every, folds=folds)
    if made.reason is not None:
        return made.reason
    topics = frozenset(place.rpartition("/")[0] for place in made.high_orders or {})
    told = {f.name for f in made.schema or fields} | {target.source_column}
    fields = tuple(f for f in made.fields if f.name in told)
    found = Decoded(
        tuple(f.column for f in fields),
        target.key,
        made.changes if made.events else None,
        newest=made.newest,
        events=made.events,
        high_orders=made.high_orders,
        stretches=made.stretches,
        folded=made.folded,
        engine="native",
        packed=made.packed if made.events else None,
        every_event=made.every_event if made.events else None,
        source_table=only_source(target, made.tables, topics),
        told=tuple(f.name for f in made.schema or () if f.name not in target.exclude_columns) if made.events else (),
    )
    if made.aside is None:
        return found
    besides = Besides(fields, made.tables, topics, made.schema)
    try:
        odd = decode_in_jvm(made.aside, format_name, target, reading, known, adopt=adopt, besides=besides)
    except ApartError:
        return str(made.why)
    leaves_out = made.packed is not None and made.packed.facts.leaves_out
    if made.folded and (odd.accepted or odd.truncate_order or (odd.rejections and leaves_out)):
        # the last event of a key is not enough: an odd one may be newer, complete it, or have to come before it
        made = run(every=True, folds=False)
        if made.events:
            found = replace(found, changes=made.changes, packed=made.packed, every_event=None, folded=False)
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
    if known.types:
        seen = tuple(Field(name, kind) for name, kind in known.types.items())
    elif told is not None:
        seen = told
    elif format_name in native.FORMATS:
        seen = _sampled(messages, format_name, target, reading, known)
    else:
        seen = ()
    return tuple(typed_field(f, target, known.types) for f in wanted_fields(seen, target)) if seen else ()


def _sampled(messages: Messages, format_name: str, target: Target, reading: Reading, known: Known) -> tuple[Field, ...]:
    """The columns that the first messages tell; none if these are of several tables that are not wanted together."""
    if known.scan:
        sampled = known.scan.fields(_SAMPLE, format_name, partial(feeds, target), shards=bool(target.source_tables))
        if sampled is not None:
            return sampled
    read = find_format(format_name)
    found = survey(read.envelopes(messages().limit(_SAMPLE), reading), read, keys=False)
    mine = [
        s
        for s in found
        if s.events and (not s.source_table or feeds(target, s.source_table, s.topics if reading.routed else ()))
    ]
    many = len([s for s in mine if s.source_table]) > 1 and not target.source_tables
    return () if many else merge_fields(s.fields for s in mine)
