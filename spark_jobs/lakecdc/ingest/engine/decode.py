"""From messages to the changes of one table: at once where they are what the table expects, else after a survey."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest.engine.asides import Besides, together, with_told
from lakecdc.ingest.engine.decode_messages import decode_messages, look_through
from lakecdc.ingest.engine.decoded import Decoded, Request
from lakecdc.ingest.engine.decoding import FORMATS, MANY_ROWS, Decoding
from lakecdc.ingest.engine.envelope_frame import envelope_frame, in_json
from lakecdc.ingest.engine.envelope_reader import EnvelopeReader
from lakecdc.ingest.engine.run import EngineResult, Scan, SurveyNeededError, check_fields, decode_at_once
from lakecdc.ingest.engine.schemas import SchemaError
from lakecdc.ingest.engine.source_tables import feeds, only_source
from lakecdc.ingest.engine.survey import ROWS, survey
from lakecdc.ingest.engine.table_fields import typed_field, wanted_fields
from lakecdc.ingest.formats import find_format
from lakecdc.ingest.formats.changes import REJECTED
from lakecdc.ingest.formats.values import Field, merge_fields
from lakecdc.model.order import EVENT_DIGITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.contract.target import Target
    from lakecdc.ingest.change import Rows
    from lakecdc.ingest.engine.decode_messages import Surveyed
    from lakecdc.ingest.engine.decoded import Known
    from lakecdc.ingest.formats.envelope import InJson, Reading
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
    made = _BatchDecoder(messages, Request(format_name, target, reading, known, adopt)).decode()
    rows = made.rows

    def unfolded() -> Rows:
        every = decode(messages, format_name, target, reading, replace(known, folds=False), adopt=adopt).rows
        assert every is not None
        return every

    if rows is not None and rows.folded and rows.unfolded is None:
        rows = replace(rows, unfolded=unfolded)
    return replace(made, rows=rows, origin=_origin(messages, format_name, reading))


def _origin(messages: Messages, format_name: str, reading: Reading) -> Callable[[DataFrame], DataFrame]:
    """How the messages of events are found again, for the few of which that is wanted."""

    def find(events: DataFrame) -> DataFrame:
        reader = EnvelopeReader(format_name, reading, ())
        envelopes = envelope_frame(in_json(messages(), format_name, reading), reader).where(F.col("op").isin(*ROWS))
        at_place = F.substring("order", 1, EVENT_DIGITS) == F.substring("asked", 1, EVENT_DIGITS)
        found = envelopes.join(F.broadcast(events.withColumnRenamed("order", "asked")), at_place)
        # the engines count the records of a file in different ways
        return found.where("order = asked OR topic IS NULL").select("asked", *REJECTED[:-1])

    return find


class _BatchDecoder:
    """What decodes one batch for one table; see :func:`decode`."""

    def __init__(self, messages: Messages, request: Request) -> None:
        self._messages, self._request = messages, request
        self._format, self._target, self._known = request.format, request.target, request.known
        self._prepared: InJson | None = None

    def decode(self) -> Decoded:
        """Decode the batch, once a survey has looked through it if that is needed."""
        try:
            return self._decode_at_once()
        except SurveyNeededError as needed:
            messages = self._prepared.messages if self._prepared else self._messages()
            found = decode_messages(look_through(messages, self._request), self._request)
            return replace(found, engine=f"after a survey: {needed}")

    def _decode_at_once(self) -> Decoded:
        """Decode messages that are what the table expects.

        :raises SurveyNeededError: some are not.
        """
        fields = self._expected_fields()
        made, found, aside = self._attempt(fields)
        seen = with_told(fields, aside.fields) if aside is not None and aside.events else fields
        if seen != fields:
            # with the new columns, tasks can decode most of what was set aside
            made.release()
            made, found, aside = self._attempt(seen)
        if aside is None:
            return found
        leaves_out = made.rows.folded and made.rows.facts.leaves_out
        if aside.events or (leaves_out and aside.problems):
            # one may be newer than the last event of its key, complete it, or have to come before it
            made.release()
            raise SurveyNeededError(str(made.why))
        engine = f"native, but for {made.asides} messages: {made.why}"
        return replace(together(found, decode_messages(aside, self._request)), engine=engine)

    def _attempt(self, fields: tuple[Field, ...]) -> tuple[EngineResult, Decoded, Surveyed | None]:
        """Decode the batch in tasks, and survey the messages that they set aside; None if there are none."""
        made = self._run(fields)
        found, besides = self._plain(made, fields)
        return made, found, None if made.aside is None else look_through(made.aside, self._request, besides)

    def _expected_fields(self) -> tuple[Field, ...]:
        """Return the columns that the table's messages should have.

        :raises SurveyNeededError: they are not known before a survey.
        """
        target = self._target
        to_json = find_format(self._format).in_json
        if to_json is not None:
            self._prepared = to_json(self._messages(), self._request.reading)
        if target.fold_case:
            raise SurveyNeededError("fold_case")
        if target.on_dropped_column != "keep" and (target.source_tables or self._format not in _WITH_SCHEMAS):
            raise SurveyNeededError("on_dropped_column")
        if self._prepared and self._prepared.told is None:
            raise SurveyNeededError("records that are not of one schema of a registry")
        fields = self._fields_before()
        check_fields(self._format, fields)
        if target.keyed and not self._request.key:
            raise SurveyNeededError("the messages tell the key")
        if not fields or not {*self._request.key} <= {f.name for f in fields}:
            raise SurveyNeededError("the key columns are not known yet")
        return fields

    def _run(self, fields: tuple[Field, ...]) -> EngineResult:
        request, prepared = self._request, self._prepared
        scan = None if prepared else self._known.scan
        plan = request.fold_plan(folds=request.folds)
        messages = self._messages if prepared is None else lambda: prepared.messages
        return decode_at_once(messages, self._decoding(fields, scan), plan, scan)

    def _decoding(self, fields: tuple[Field, ...], scan: Scan | None) -> Decoding:
        """Return how messages are read before a survey.

        :raises SurveyNeededError: their schema is another one.
        """
        target, reading = self._target, self._request.reading
        decoding = Decoding(
            fields,
            self._request.key,
            target.source_name,
            reading.epoch,
            reading.unavailable_value,
            target.exclude_columns,
            scan is None or scan.keyed,
            self._format,
            reading.settings.get("order_by"),
            target.wants if target.source_tables else None,
            target.source_column,
            target.encodings,
            routed=reading.routed,
            only_added=reading.only_added,
            fixed=tuple(target.columns),
            named=target.source_table is not None,
            tells_key=target.keyed and not target.key,
            # the columns of a new table are those of all its messages
            rejects=bool(self._known.types),
            # a message of which some rows are odd would be decoded twice
            sets_aside=bool(self._known.types) and self._format not in MANY_ROWS,
        )
        if self._prepared is None or self._prepared.told is None:
            return decoding
        try:
            return replace(decoding.with_schema(self._prepared.told), texts=True)
        except SchemaError as error:
            raise SurveyNeededError(str(error)) from None

    def _plain(self, made: EngineResult, fields: tuple[Field, ...]) -> tuple[Decoded, Besides]:
        """Return what has been decoded at once, and what it tells of the messages that were set aside."""
        topics = frozenset(place.rpartition("/")[0] for place in made.high_orders or {})
        told = {f.name for f in made.schema or fields} | {self._target.source_column}
        fields = tuple(f for f in made.fields if f.name in told)
        excluded = self._target.exclude_columns
        found = Decoded(
            tuple(f.column for f in fields),
            self._request.key,
            newest=made.newest,
            events=made.events,
            rows=None if made.events == (made.rejected.count if made.rejected else 0) else made.rows,
            rejected=made.rejected,
            high_orders=made.high_orders,
            stretches=made.stretches,
            engine="native",
            source_table=only_source(self._target, made.tables, topics),
            told=tuple(f.name for f in made.schema or () if f.name not in excluded) if made.events else (),
        )
        return found, Besides(fields, made.tables, topics, made.schema, str(made.why))

    def _fields_before(self) -> tuple[Field, ...]:
        """Return the columns as the table has them; of a new table, those of the first messages."""
        target, known = self._target, self._known
        if known.types:
            seen = tuple(Field(name, kind) for name, kind in known.types.items())
        elif self._prepared is not None and self._prepared.told is not None:
            seen = self._prepared.told
        elif self._format in FORMATS:
            seen = self._sampled()
        else:
            seen = ()
        return tuple(typed_field(f, target, known.types) for f in wanted_fields(seen, target)) if seen else ()

    def _sampled(self) -> tuple[Field, ...]:
        """Return the columns that the first messages tell; none if these are of several unwanted tables."""
        target, scan = self._target, self._known.scan
        if scan:
            sampled = scan.fields(_SAMPLE, self._format, partial(feeds, target), shards=bool(target.source_tables))
            if sampled is not None:
                return sampled
        reader = EnvelopeReader(self._format, self._request.reading, target.columns)
        found = survey(self._messages().limit(_SAMPLE), reader)
        routed = self._request.reading.routed
        mine = [
            s
            for s in found
            if s.events and (not s.source_table or feeds(target, s.source_table, s.topics if routed else ()))
        ]
        many = len([s for s in mine if s.source_table]) > 1 and not target.source_tables
        return () if many else merge_fields(s.fields for s in mine)
