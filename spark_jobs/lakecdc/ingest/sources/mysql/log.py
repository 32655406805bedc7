"""Read the log: one Spark task dumps and decodes it."""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakecdc.contract.errors import InputError, LakecdcError, SourceUnavailableError
from lakecdc.ingest.engine.log_layout import LogText, LogVersion
from lakecdc.ingest.sources.database import cause
from lakecdc.ingest.sources.log import rounds
from lakecdc.ingest.sources.mysql.connect import Address, connect, query
from lakecdc.ingest.sources.mysql.decoder import Decoder, LogError
from lakecdc.ingest.sources.mysql.events import FORMAT
from lakecdc.ingest.sources.mysql.reading import Limits, LogTable, Relation
from lakecdc.ingest.sources.mysql.server import Server
from lakecdc.model.positions import Place

_DUMP, _NON_BLOCKING = 0x12, 0x01
_SETTINGS = (
    "SET @master_binlog_checksum = @@global.binlog_checksum",
    "SET @source_binlog_checksum = @@global.binlog_checksum",
    # otherwise MariaDB rewrites events for a replica without global transaction identifiers
    "SET @mariadb_slave_capability = 4",
)


@dataclass(frozen=True)
class ReadLog(rounds.RoundTask):
    """The task of a round.

    :param server_id: the reader's server id; 0 is none.
    """

    where: Address
    limits: Limits
    server: Server
    server_id: int
    begin: Place
    log_tables: Mapping[int, LogTable]

    def rows(self) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(self.log_tables, self.server, self.begin, self.limits)
        events = () if decoder.done else dump(self.where, self.begin, self.server_id)
        yield from rounds.packed(decoder.batches(events), decoder.summary)

    def explain(self, error: Exception) -> LakecdcError:
        reason = cause(error)
        text = f"The log of the MySQL server at {self.where.place} cannot be read from {self.begin} on: {reason}."
        if "(1236," in reason:
            hint = 'If it was purged, run once with "reload": ["*"] in options, and keep the log longer.'
            return InputError(text, hint=f"{hint} (binlog_expire_logs_seconds)")
        if LogError.__name__ in reason:
            hint = 'Correct the settings of the source, then run once with "reload": ["*"] in options.'
            return InputError(text, hint=hint)
        return SourceUnavailableError(text)


def dump(where: Address, begin: Place, server_id: int) -> Generator[bytes]:
    """Yield the log's events from a place to its current end.

    Sends ``COM_BINLOG_DUMP`` as ``mysqlbinlog --read-from-remote-server`` does: the server ends the dump at the log's
    end instead of waiting. Each packet is a zero byte and one event.
    """
    session = connect(where)
    try:
        for setting in _SETTINGS:
            query(session, setting)
        body = struct.pack("<BIHI", _DUMP, begin.pos, _NON_BLOCKING, server_id) + begin.file.encode()
        # pymysql has no public method to send a custom command
        session._write_bytes(struct.pack("<I", len(body)) + body)  # type: ignore[attr-defined]
        session._next_seq_id = 1  # type: ignore[attr-defined]
        while True:
            packet = session._read_packet()
            if packet.is_eof_packet():
                return
            yield packet.get_all_data()[1:]
    finally:
        # do not wait for the rest of an abandoned dump
        session._force_close()  # type: ignore[attr-defined]


def file_created(where: Address, file: str) -> int:
    """Return when the server began a log file, in seconds since 1970; it differs after a reset of the log."""
    events = dump(where, Place(file, 4), 0)
    try:
        # the first event only names the file; the next one describes it
        described = (event for event in events if event[4] == FORMAT)
        return next((struct.unpack_from("<I", event)[0] for event in described), 0)
    finally:
        events.close()


def named(relation: Relation, names: Mapping[int, str]) -> Relation:
    """Return a description with the later names of its columns, by number."""
    if not relation.numbers:
        return relation
    used = set(names.values())
    columns = tuple(
        # a dropped column must not be confused with the column that now has its name
        (names.get(number, "" if name in used else name), base, kind)
        for number, (name, base, kind) in zip(relation.numbers, relation.columns, strict=True)
    )
    return replace(relation, columns=columns)


def version(relation: Relation, key: Sequence[str], bases: Mapping[str, str]) -> LogVersion:
    """Return the places of the texts in events with one table description.

    :param relation: with the names of the target's columns.
    :param bases: see ``MysqlType.base``, by column.
    """
    texts = {name: LogText(place, base) for place, (name, base, _type) in enumerate(relation.columns) if name}
    # without a key, a delete has the whole row
    return LogVersion(relation.version, texts, {n: LogText(i, bases[n]) for i, n in enumerate(key)} or texts)
