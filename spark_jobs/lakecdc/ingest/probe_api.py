"""Public names of ingestion for probes: Spark is never started, and a source's client is imported only when used."""

from __future__ import annotations

from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.spec import RECONCILE
from lakecdc.metadata.source_state import SourceState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Set
    from typing import Any

    from lakecdc.contract.findings import Finding
    from lakecdc.contract.sources import Source
    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.metadata.positions import Position

__all__ = ["check_start", "have_read_files", "jdbc_table_name", "measure_lag", "start_findings"]

_DATABASES = ("mysql", "postgres")


def _module(source: Source, name: str) -> Any:
    return import_module(f"lakecdc.ingest.sources.{source.type}.{name}")


def check_start(spec: JobSpec, positions: Mapping[str, Position] | None) -> SourceState:
    """Check what a run checks first, and whether the source has changes; the job checks other source types.

    :param positions: of tables that were fed; None if unknown.
    :raises LakecdcError: no table can be fed from the source.
    """
    source, state = spec.source, SourceState()
    if source is not None and source.type in _DATABASES:
        connection = _module(source, "connect")
        where = connection.address(source)
        with closing(connection.connect(where)) as session:
            if spec.job != RECONCILE:
                # needs pyspark, unlike the login above
                state = _module(source, "checks").check(session, where, spec, source, positions)
    elif source is not None and source.type == "kafka":
        state = _module(source, "checks").check(spec, source, positions)
    return state


def start_findings(spec: JobSpec, positions: Mapping[str, Position] | None) -> Iterator[Finding]:
    """Check in detail, without changes, what a run checks when it starts; other sources yield nothing."""
    if spec.source is not None and spec.source.type in (*_DATABASES, "kafka"):
        yield from _module(spec.source, "checks").findings(spec, spec.source, positions)


def measure_lag(source: Source, positions: Mapping[str, Position]) -> dict[str, int]:
    """Measure how far the source is ahead of positions that a run could continue from.

    :param source: of type ``postgres`` or ``kafka``.
    :param positions: by table.
    :return: by table, bytes of the log of ``postgres``, messages of ``kafka``.
    :raises InputError: another type of source, or a position that does not belong to this source.
    :raises SourceUnavailableError: the source is unreachable.
    """
    if source.type not in ("kafka", "postgres"):
        raise InputError(
            f"Cannot measure the lag of a source of type {source.type!r}.",
            hint="Use a source of type postgres or kafka, or wait with IcebergWatermarkSensor.",
        )
    lag: dict[str, int] = _module(source, "checks").lag(source, positions)
    return lag


def have_read_files(positions: Iterable[Position], names: Set[str]) -> bool:
    """Check whether each position itself records all of these files, URIs as Spark writes them, as read."""
    from lakecdc.ingest.sources.file_memory import fingerprint, recent

    files = set(map(fingerprint, names))
    return all(position.source == "files" and files <= recent(position) for position in positions)


def jdbc_table_name(target: Target, dialect: str) -> str:
    """Return the name by which a JDBC source looks up a target's table, with its schema if the dialect has schemas."""
    from lakecdc.ingest.sources.jdbc.dialects import source_name

    return ".".join(source_name(target, dialect))
