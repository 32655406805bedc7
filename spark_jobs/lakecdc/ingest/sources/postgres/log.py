"""The log: one Spark task peeks into the slot and decodes; a round stays on disk, for each table to take its events."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecdc.contract.errors import SourceUnavailableError
from lakecdc.ingest.engine.log_layout import LogLayout, LogText, LogVersion
from lakecdc.ingest.sources.database import cause
from lakecdc.ingest.sources.log import rounds
from lakecdc.ingest.sources.postgres import pgoutput
from lakecdc.ingest.sources.postgres.connect import Address, connect
from lakecdc.ingest.sources.postgres.pgoutput import Decoder
from lakecdc.ingest.sources.postgres.reading import Bounds, Relation, Summary, Wanted
from lakecdc.ingest.sources.postgres.snapshot import NextRow, copied
from lakecdc.ingest.sources.postgres.texts import Texts
from lakecdc.ingest.sources.postgres.types import TypeCatalog
from lakecdc.model.positions import lsn_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakecdc.contract.sources.postgres import PostgresSource
    from lakecdc.ingest.change import Column

_PEEK = """
COPY (SELECT data FROM pg_logical_slot_peek_binary_changes({slot}, {upto}::pg_lsn, {messages},
  'proto_version', '1', 'publication_names', {publication})) TO STDOUT (FORMAT binary)
"""
_IN_USE_SECONDS = 60.0
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
    """Columns of the table that the events of a round are typed for.

    :param key: names of the key columns.
    :param columns: the target's.
    :param renamed: for versions of the source's table, columns that have another name now: the new one by the old one.
    """

    key: Sequence[str]
    columns: Sequence[Column]
    types: TypeCatalog
    renamed: Mapping[int, Mapping[str, str]]

    def layout(self, log_round: Round, oid: int, *, overtaken: bool) -> LogLayout:
        """Return the layout of the events.

        :param oid: the source table's.
        :param overtaken: a full load may have read rows that are newer than the events.
        """
        # such an update may not be filled from the load's row; a parked round does not tell which tables have any
        leaves_out = log_round.parked is not None or oid in log_round.summary.open
        return LogLayout(
            tuple(self._version(relation) for relation in log_round.relations(oid)),
            tuple(self.columns),
            tuple(self.key),
            Texts(self.types.infinity),
            log_round.place,
            "commit_micros",
            1,
            log_round.end,
            folds=not (overtaken and leaves_out),
        )

    def _version(self, relation: Relation) -> LogVersion:
        renamed = self.renamed.get(relation.version, {})
        texts = {
            renamed.get(column.name, column.name): LogText(place, self.types.base_name(column.type_oid))
            for place, column in enumerate(relation.columns)
        }
        return LogVersion(relation.version, texts, {name: texts[name] for name in self.key}, renamed)
