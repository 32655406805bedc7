"""Lag of tables behind their source, without Spark: ``python -m lakecdc.probes.source_lag < question.json``.

The question is ``{"source": …, "positions": {table: text}}``, with positions as in snapshot summaries; the answer is a
JSON object by table, in bytes of Postgres' log or in Kafka messages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError, LakecdcError, SourceUnavailableError
from lakecdc.contract.report import EXIT_BAD_INPUT, EXIT_DONE, EXIT_OTHER
from lakecdc.contract.secrets import mask, resolve
from lakecdc.contract.sources import parse_source
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.spec import loads
from lakecdc.contract.target import Target
from lakecdc.metadata.positions import decode

if TYPE_CHECKING:
    from lakecdc.contract.sources import Source
    from lakecdc.ingest.sources.kafka.topology import Topology
    from lakecdc.metadata.positions import Position


def main() -> int:
    """Answer the question on standard input.

    :return: 4 if the source is the wrong one, 1 if it is unreachable, each with the reason on standard output.
    """
    question = loads(sys.stdin.read())
    positions = {table: decode(text) for table, text in question["positions"].items()}
    try:
        lag = source_lag(parse_source(question["source"], ()), positions)
    except (LakecdcError, ImportError) as error:
        print(mask(str(error)))
        return EXIT_OTHER if isinstance(error, SourceUnavailableError) else EXIT_BAD_INPUT
    print(json.dumps(lag))
    return EXIT_DONE


def source_lag(source: Source, positions: Mapping[str, Position]) -> dict[str, int]:
    """Measure how far the source is ahead of positions that a run could continue from.

    :param source: of type ``postgres`` or ``kafka``.
    :param positions: by table.
    :return: by table, bytes of the log of ``postgres``, messages of ``kafka``.
    :raises InputError: another type of source, or a position that does not belong to this source.
    :raises SourceUnavailableError: the source is unreachable.
    """
    if isinstance(source, PostgresSource):
        return _bytes_of_log(source, positions)
    if isinstance(source, KafkaSource):
        return _messages(source, positions)
    raise InputError(
        f"Cannot measure the lag of a source of type {source.type!r}.",
        hint="Use a source of type postgres or kafka, or wait with IcebergWatermarkSensor.",
    )


def _bytes_of_log(source: PostgresSource, positions: Mapping[str, Position]) -> dict[str, int]:
    from lakecdc.ingest.sources.database import check_identity
    from lakecdc.ingest.sources.postgres.connect import address, connect
    from lakecdc.ingest.sources.postgres.slots import identity
    from lakecdc.model.positions import LsnPosition, lsn

    where = address(source)
    with connect(where) as session:
        cluster = identity(session)
        for table, position in positions.items():
            check_identity(table, position, source.type, cluster, where.place)
        (end,) = session.execute("SELECT pg_current_wal_flush_lsn()").fetchone() or ("0/0",)
    # on a quiet source a table's position may be past the flushed end
    return {table: max(0, lsn(end) - LsnPosition.of(position.offsets).lsn) for table, position in positions.items()}


def _messages(source: KafkaSource, positions: Mapping[str, Position]) -> dict[str, int]:
    from lakecdc.ingest.sources.kafka.librdkafka import LibrdkafkaCluster
    from lakecdc.ingest.sources.kafka.topology import survey

    settings = resolve(source.settings, "source.settings")
    topology = survey(LibrdkafkaCluster({**settings, "bootstrap.servers": source.bootstrap_servers}), source)
    return {table: _left(source, topology, table, position) for table, position in positions.items()}


def _left(source: KafkaSource, topology: Topology, table: str, position: Position) -> int:
    """Count the remaining messages of a table's topics, including those of new partitions."""
    from lakecdc.ingest.sources.kafka import progress as kafka
    from lakecdc.ingest.sources.kafka.topology import checked, extended

    if position.source != source.type:
        raise InputError(f"The table was fed from a source of type {position.source}.", table=table)
    known = kafka.decode(position)
    names = [name for name in known.topics if source.wants(name)]
    progress = extended(checked(known, names, topology, source, Target(table)), names, topology, first=False)
    return sum(max(0, topology.ends[place] - offset) for place, offset in progress.next.items() if place[0] in names)


if __name__ == "__main__":
    sys.exit(main())
