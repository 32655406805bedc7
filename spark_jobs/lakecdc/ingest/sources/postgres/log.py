"""Read the log: one Spark task peeks into the slot and decodes."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from lakecdc.contract.errors import SourceUnavailableError
from lakecdc.ingest.engine.log_layout import LogText, LogVersion
from lakecdc.ingest.sources.database import cause
from lakecdc.ingest.sources.log import rounds
from lakecdc.ingest.sources.postgres.connect import Address, connect
from lakecdc.ingest.sources.postgres.pgoutput import Decoder
from lakecdc.ingest.sources.postgres.reading import Bounds, LogTable, Relation
from lakecdc.ingest.sources.postgres.snapshot import NextRow, copied
from lakecdc.ingest.sources.postgres.types import TypeCatalog
from lakecdc.model.positions import lsn_text

_PEEK = """
COPY (SELECT data FROM pg_logical_slot_peek_binary_changes({slot}, {upto}::pg_lsn, {messages},
  'proto_version', '1', 'publication_names', {publication})) TO STDOUT (FORMAT binary)
"""
_IN_USE_SECONDS = 60.0
# binary COPY: a header of 19 bytes, then per row a count of fields and a length before the one value
_HEADER, _ROW, _TRAILER = 19, 6, b"\xff\xff"


@dataclass(frozen=True)
class ReadLog(rounds.RoundTask):
    """The task of a round.

    :param publication: list of publications for the plugin, identifiers quoted.
    :param upto: LSN after which no further transaction is read.
    :param messages: number of messages after which the current transaction is the last.
    :param log_tables: the tables, by oid.
    :param limits: further limits, unknown to the server.
    """

    where: Address
    limits: Bounds
    slot: str
    publication: str
    upto: int
    messages: int
    log_tables: Mapping[int, LogTable]

    def rows(self) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(self.log_tables, self.limits)
        with closing(self._messages()) as messages:
            yield from rounds.packed(decoder.batches(messages), decoder.summary)

    def explain(self, error: Exception) -> SourceUnavailableError:
        what = f"The slot {self.slot!r} of Postgres at {self.where.place} cannot be read"
        return SourceUnavailableError(f"{what}: {cause(error)}.")

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
                # an earlier attempt of this task may still be connected; it fails before the first row
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


def publication_list(name: str) -> str:
    """Return a publication's name in the syntax of the plugin's option."""
    return '"' + name.replace('"', '""') + '"'


def version(
    relation: Relation, key: Sequence[str], types: TypeCatalog, renamed: Mapping[str, str] | None
) -> LogVersion:
    """Return the places of the texts in events with one table description.

    :param key: current names of the key columns.
    :param renamed: new names of columns by their old ones.
    """
    now = renamed or {}
    texts = {
        now.get(column.name, column.name): LogText(place, types.base_name(column.type_oid))
        for place, column in enumerate(relation.columns)
    }
    return LogVersion(relation.version, texts, {name: texts[name] for name in key}, now)
