"""The log: one Spark task peeks into the slot and decodes; a round stays on disk, for each table to take its events.

What is plain is typed and folded by tasks of the native engine, the rest in the JVM.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.errors import SourceUnavailableError
from lakecdc.ingest.formats.native.log import LogColumn, LogLayout
from lakecdc.ingest.sources.database import cause
from lakecdc.ingest.sources.log import rounds
from lakecdc.ingest.sources.postgres import pgoutput
from lakecdc.ingest.sources.postgres.arrow_values import converted
from lakecdc.ingest.sources.postgres.connect import Address, connect
from lakecdc.ingest.sources.postgres.pgoutput import Decoder
from lakecdc.ingest.sources.postgres.reading import Bounds, Relation, Summary, Wanted
from lakecdc.ingest.sources.postgres.snapshot import NextRow, copied
from lakecdc.ingest.sources.postgres.types import TypeCatalog
from lakecdc.ingest.sources.text_values import TextValue, by_version, judgement, named_values
from lakecdc.model.order import order_sql
from lakecdc.model.positions import lsn_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

    from lakecdc.contract.sources.postgres import PostgresSource
    from lakecdc.ingest.change import Column

_PEEK = """
COPY (SELECT data FROM pg_logical_slot_peek_binary_changes({slot}, {upto}::pg_lsn, {messages},
  'proto_version', '1', 'publication_names', {publication})) TO STDOUT (FORMAT binary)
"""
_IN_USE_SECONDS = 60.0
# what one task sorts in memory when it folds
_EVENTS_PER_TASK, _BYTES_PER_TASK = 100_000, 64 * 1024 * 1024
# binary COPY: a header of 19 bytes, then per row a count of fields and a length before the one value
_HEADER, _ROW, _TRAILER = 19, 6, b"\xff\xff"


@dataclass(frozen=True)
class ReadLog(rounds.RoundTask):
    """What the task of a round runs.

    :param publication: the publication list as the plugin parses it, identifiers quoted.
    :param upto: LSN after which no transaction is begun to be read.
    :param messages: the slot's messages after which the current transaction is the last.
    :param wanted: the tables, by oid.
    :param bounds: further ones, which the server does not know.
    """

    where: Address
    slot: str
    publication: str
    upto: int
    messages: int
    wanted: Mapping[int, Wanted]
    bounds: Bounds = Bounds()

    def without_deadline(self) -> ReadLog:
        return replace(self, bounds=replace(self.bounds, seconds=0))

    def rows(self) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(self.wanted, self.bounds)
        with closing(self._messages()) as messages:
            yield from rounds.packed(decoder.batches(messages), decoder.summary)

    def _messages(self) -> Generator[bytes]:
        from psycopg import errors, sql

        statement = sql.SQL(_PEEK).format(
            slot=sql.Literal(self.slot),
            upto=sql.Literal(lsn_text(self.upto)),
            messages=sql.Literal(self.messages),
            publication=sql.Literal(self.publication),
        )
        deadline = time.monotonic() + _IN_USE_SECONDS
        while True:
            session = connect(self.where)
            try:
                yield from copied(session, statement.as_bytes(session), values)
                return
            except errors.ObjectInUse:
                # an earlier attempt of this task may not be gone yet; it fails before the first row
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            finally:
                session.close()


def values(next_row: NextRow) -> Iterator[bytes]:
    """Yield the values of a binary COPY of one column that is never null."""
    begin = _HEADER
    while True:
        size, row = next_row()
        if size < 0:
            return
        data = bytes(row[begin:])
        begin = 0
        if data and data[:2] != _TRAILER:
            yield data[_ROW:]


class Round(rounds.Round[Summary]):
    """See :class:`lakecdc.ingest.sources.log.rounds.Round`."""

    schema = pgoutput.SCHEMA
    place = "commit_lsn"

    @property
    def end(self) -> int:
        return self.summary.end_lsn

    def relations(self, oid: int) -> list[Relation]:
        """Return the descriptions of a table in this round, oldest first."""
        return [relation for relation in self.summary.relations if relation.oid == oid]

    def truncate(self, relation: int) -> tuple[int, int, int] | None:
        place = self.summary.truncates.get(relation)
        return (place[0], place[1], place[2] // 1000) if place else None

    def truncated_by(self, oid: int) -> int | None:
        """Return the transaction of a table's last TRUNCATE; None if it is not known."""
        place = self.summary.truncates.get(oid, ())
        return place[3] if len(place) > 3 else None

    def summary_of(self, relation: int) -> Summary:
        whole, events = self.summary, self.events(relation)
        return Summary(
            end_lsn=whole.end_lsn,
            commit_micros=whole.commit_micros,
            events={relation: events} if events else {},
            truncates={oid: place for oid, place in whole.truncates.items() if oid == relation},
            relations=self.relations(relation),
            bytes=whole.event_bytes * sum(events.values()),
        )


def read(spark: SparkSession, task: ReadLog) -> Round:
    """Read a round.

    :raises SourceUnavailableError: the task fails.
    """

    def explain(error: Exception) -> SourceUnavailableError:
        what = f"The slot {task.slot!r} of Postgres at {task.where.place} cannot be read"
        return SourceUnavailableError(f"{what}: {cause(error)}.")

    cells, summary = rounds.read(spark, task, explain)
    return Round(Summary.from_json(summary), cells)


def events_at_once(source: PostgresSource, event_bytes: int) -> int:
    """How many events to ask for, because the server puts all of them aside before it sends the first.

    :param event_bytes: mean size of those that were read last; 0 if it is not known.
    """
    bound = source.max_batch_bytes if event_bytes else 0
    return min(source.max_batch_events, max(1, bound // event_bytes)) if bound else source.max_batch_events


def publication_list(name: str) -> str:
    """Return a publication's name as the plugin's option takes it."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class TableEvents:
    """Read the events of one table from a round of the log.

    :param oid: the table's.
    :param columns: the target's columns.
    :param renamed: for versions of the table, columns that have another name now: the new one by the old one.
    """

    log_round: Round
    oid: int
    key: Sequence[str]
    columns: Sequence[Column]
    types: TypeCatalog
    renamed: Mapping[int, Mapping[str, str]]

    def changes(self, epoch: int, *, judged: bool = False) -> DataFrame:
        """Return the change frame.

        :param epoch: of the order keys.
        :param judged: values that do not fit do not stop it, see ``Rows``.
        """
        key, renamed = self.key, self.renamed
        described = self.log_round.relations(self.oid)
        relations = [_with_names(relation, renamed.get(relation.version, {})) for relation in described]
        of_row = {c.name: _value("new", c, relations, self.types) for c in self.columns}
        of_key = {c.name: _value("old", c, relations, self.types) for c in self.columns if c.name in key}
        new, old = (named_values(values, judged=judged) for values in (of_row, of_key))
        gone, moved = F.col("kind") == "d", F.coalesce("moved", F.lit(False))
        new_key, old_key = (F.struct(*[values[k] for k in key]) for values in (new, old))
        order = order_sql(str(epoch), "commit_lsn", "ordinal", "8", "commit_micros div 1000")
        frame = self.log_round.of_table(self.oid).select(
            F.col("kind").alias("op"),
            F.when(gone, old_key).otherwise(new_key).alias("key"),
            F.when(~gone, F.struct(*new.values())).alias("row"),
            _open(renamed).alias("open"),
            F.when(F.col("moved"), old_key).alias("old_key"),
            F.expr(order).alias("order"),
            F.timestamp_micros("commit_micros").alias("source_time"),
            *(judgement(of_row, of_key, key, gone, moved) if judged else ()),
        )
        tasks = self.log_round.size(self.oid).tasks(_EVENTS_PER_TASK, _BYTES_PER_TASK)
        # one task has read them all, and would sort them all by key to fold them
        return frame.repartition(tasks, "key") if key and tasks > 1 else frame

    def layout(self, *, overtaken: bool) -> LogLayout | str:
        """Return how tasks of the native engine take the events, or why they are the JVM's.

        :param overtaken: a full load may have read rows that are newer than the events.
        """
        log_round, columns = self.log_round, self.columns
        relations = log_round.relations(self.oid)
        # a parked round does not tell which tables have such updates
        if overtaken and (log_round.parked is not None or self.oid in log_round.summary.open):
            return "an update from before its row was loaded leaves values out"
        if len(relations) > 1 or any(self.renamed.values()):
            return "the source has altered the table"
        (relation,) = relations
        places = {column.name: place for place, column in enumerate(relation.columns)}
        missing = [c.name for c in columns if c.name not in places]
        if missing:
            return f"the log has no column {missing[0]!r}"
        if odd := self.types.odd_for_arrow(relation.columns, columns):
            return odd
        oids = {column.name: column.type_oid for column in relation.columns}
        wanted = tuple(LogColumn(c.name, places[c.name], self.types.base_name(oids[c.name]), c.type) for c in columns)
        names = [column.name for column in wanted]
        places_of_key = tuple((names.index(k), places[k]) for k in self.key)
        return LogLayout(wanted, places_of_key, converted, log_round.place, "commit_micros", 1, log_round.end)


def _with_names(relation: Relation, names: Mapping[str, str]) -> Relation:
    columns = tuple(replace(c, name=names.get(c.name, c.name)) for c in relation.columns)
    return replace(relation, columns=columns)


def _open(renamed: Mapping[int, Mapping[str, str]]) -> Expression:
    """Return the names of unchanged columns, as they are now."""
    found = F.col("open")
    for version, names in renamed.items():
        if names:
            new = F.create_map(*[F.lit(x) for pair in names.items() for x in pair])
            there = _now(new)
            found = F.when(F.col("version") == version, there).otherwise(found)
    return found


def _now(names: Expression) -> Expression:
    return F.transform("open", lambda name: F.coalesce(F.try_element_at(names, name), name))


def _value(field: str, column: Column, relations: Sequence[Relation], types: TypeCatalog) -> TextValue:
    """Return a column's value, wherever it stands in each version of the table.

    In versions from before the column it is what the source shows in such rows now.
    """
    found = [
        (relation.version, types.typed(F.get(field, F.lit(place)), candidate.type_oid, column))
        for relation in relations
        for place, candidate in enumerate(relation.columns)
        if candidate.name == column.name
    ]
    return by_version(column, found, len(relations))
