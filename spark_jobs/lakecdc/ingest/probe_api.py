"""Public names of ingestion for probes: Spark is never started, and a source's client is imported only when used."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.spec import RECONCILE
from lakecdc.metadata.source_state import SourceState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Set

    from lakecdc.contract.findings import Finding
    from lakecdc.contract.sources import Source
    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.metadata.positions import Position

__all__ = ["check_start", "have_read_files", "jdbc_table_name", "measure_lag", "start_findings"]


def check_start(spec: JobSpec, positions: Mapping[str, Position] | None) -> SourceState:
    """Check what a run checks first, and whether the source has changes; the job checks other source types.

    :param positions: of tables that were fed; None if unknown.
    :raises LakecdcError: no table can be fed from the source.
    """
    source = spec.source
    if isinstance(source, PostgresSource):
        from lakecdc.ingest.sources.postgres import connect as postgres

        server = postgres.address(source)
        with closing(postgres.connect(server)) as session:
            if spec.job == RECONCILE:
                return SourceState()
            # needs pyspark, unlike the login above
            from lakecdc.ingest.sources.postgres import checks as postgres_start

            return postgres_start.check(session, server, spec, source, positions)
    if isinstance(source, MysqlSource):
        from lakecdc.ingest.sources.mysql import connect as mysql

        place = mysql.address(source)
        with closing(mysql.connect(place)) as connection:
            if spec.job == RECONCILE:
                return SourceState()
            from lakecdc.ingest.sources.mysql import checks as mysql_start

            return mysql_start.check(connection, place, spec, positions)
    if isinstance(source, KafkaSource):
        from lakecdc.ingest.sources.kafka import checks

        return checks.check(spec, source, positions)
    return SourceState()


def start_findings(spec: JobSpec, positions: Mapping[str, Position] | None) -> Iterator[Finding]:
    """Check in detail, without changes, what a run checks when it starts; other sources yield nothing."""
    source = spec.source
    if isinstance(source, PostgresSource):
        from lakecdc.ingest.sources.postgres import checks as postgres

        yield from postgres.findings(spec, source, positions)
    elif isinstance(source, MysqlSource):
        from lakecdc.ingest.sources.mysql import checks as mysql

        yield from mysql.findings(spec, source, positions)
    elif isinstance(source, KafkaSource):
        from lakecdc.ingest.sources.kafka import checks as kafka

        yield from kafka.findings(spec, source)


def measure_lag(source: Source, positions: Mapping[str, Position]) -> dict[str, int]:
    """Measure how far the source is ahead of positions that a run could continue from.

    :param source: of type ``postgres`` or ``kafka``.
    :param positions: by table.
    :return: by table, bytes of the log of ``postgres``, messages of ``kafka``.
    :raises InputError: another type of source, or a position that does not belong to this source.
    :raises SourceUnavailableError: the source is unreachable.
    """
    if isinstance(source, PostgresSource):
        from lakecdc.ingest.sources.postgres import checks as postgres

        return postgres.lag(source, positions)
    if isinstance(source, KafkaSource):
        from lakecdc.ingest.sources.kafka import checks

        return checks.lag(source, positions)
    raise InputError(
        f"Cannot measure the lag of a source of type {source.type!r}.",
        hint="Use a source of type postgres or kafka, or wait with IcebergWatermarkSensor.",
    )


def have_read_files(positions: Iterable[Position], names: Set[str]) -> bool:
    """Check whether each position itself records all of these files, URIs as Spark writes them, as read."""
    from lakecdc.ingest.sources.file_memory import fingerprint, recent

    files = set(map(fingerprint, names))
    return all(position.source == "files" and files <= recent(position) for position in positions)


def jdbc_table_name(target: Target, dialect: str) -> str:
    """Return the name by which a JDBC source looks up a target's table, with its schema if the dialect has schemas."""
    from lakecdc.ingest.sources.jdbc.dialects import source_name

    return ".".join(source_name(target, dialect))
