"""How far a source is ahead of tables, without Spark: ``python -m lakecdc.source_lag < question.json``.

The question is ``{"source": …, "positions": {table: text}}``, with positions as snapshot summaries hold them; the
answer is a JSON object by table, of bytes of Postgres' log or of Kafka's messages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError, LakecdcError
from lakecdc.contract.report import EXIT_BAD_INPUT, EXIT_DONE
from lakecdc.contract.secrets import mask, resolve
from lakecdc.contract.sources import parse_source
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.spec import loads
from lakecdc.metadata.positions import decode

if TYPE_CHECKING:
    from lakecdc.contract.sources import Source
    from lakecdc.metadata.positions import Position


def main() -> int:
    """Answer the question that stands on the standard input.

    :return: 4 with the reason on the standard output if the source cannot be asked, else 0.
    """
    question = loads(sys.stdin.read())
    positions = {table: decode(text) for table, text in question["positions"].items()}
    try:
        found = source_lag(parse_source(question["source"], ()), positions)
    except (LakecdcError, ImportError) as error:
        print(mask(str(error)))
        return EXIT_BAD_INPUT
    print(json.dumps(found))
    return EXIT_DONE


def source_lag(source: Source, positions: Mapping[str, Position]) -> dict[str, int]:
    """Ask the source how far it is ahead of positions.

    :param source: of type ``postgres`` or ``kafka``.
    :param positions: by table.
    :return: by table, bytes of the log of ``postgres``, messages of ``kafka``.
    :raises InputError: another type of source, or a position in another source.
    :raises SourceUnavailableError: the source is out of reach.
    """
    if foreign := [table for table, position in positions.items() if position.source != source.type]:
        raise InputError(
            f"The source is of type {source.type!r}, and the table is fed from {positions[foreign[0]].source!r}.",
            table=foreign[0],
            hint="Name the source that feeds it.",
        )
    if isinstance(source, PostgresSource):
        return _bytes_of_log(source, positions)
    if isinstance(source, KafkaSource):
        return _messages(source, positions)
    raise InputError(
        f"A source of type {source.type!r} has no log whose end could be asked for.",
        hint="Sources of type postgres and kafka have. For others wait by IcebergWatermarkSensor.",
    )


def _bytes_of_log(source: PostgresSource, positions: Mapping[str, Position]) -> dict[str, int]:
    from lakecdc.ingest.sources.postgres.connect import address, connect, lsn

    with connect(address(source)) as session:
        (end,) = session.execute(
            "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END"
        ).fetchone() or ("0/0",)
    return {table: max(0, lsn(end) - lsn(position.offsets["lsn"])) for table, position in positions.items()}


def _messages(source: KafkaSource, positions: Mapping[str, Position]) -> dict[str, int]:
    from lakecdc.ingest.sources.kafka.librdkafka import LibrdkafkaCluster
    from lakecdc.ingest.sources.kafka.progress import decode as progress_of

    settings = resolve(source.settings, "source.settings")
    cluster = LibrdkafkaCluster({**settings, "bootstrap.servers": source.bootstrap_servers})
    starts = {table: progress_of(position).next for table, position in positions.items()}
    ends = cluster.ends({place for places in starts.values() for place in places})
    return {
        table: sum(max(0, ends[place] - start) for place, start in places.items()) for table, places in starts.items()
    }


if __name__ == "__main__":
    sys.exit(main())
