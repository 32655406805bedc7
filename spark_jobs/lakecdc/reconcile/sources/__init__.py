"""Read the tables of a source to compare with, one module per type; each reads as a full load does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.change import Column, TableBatch
    from lakecdc.metadata.positions import Position
    from lakecdc.reconcile.ranges import Wanted


@dataclass(frozen=True)
class SourceRows:
    """Rows of a source table.

    :param changes: as the change frame of a full load.
    :param unreadable: rows that ingestion would put into the quarantine; they are not among the changes.
    """

    changes: DataFrame
    unreadable: int = 0


class SourceTable(Protocol):
    """A source table."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Its columns as the target should have them."""

    @property
    def ordered(self) -> Mapping[str, str]:
        """Columns by ranges of which rows can be asked for, in the order that Spark has them in, with their types."""

    def rows(self, wanted: Wanted | None) -> AbstractContextManager[SourceRows]:
        """Its rows, which can be read until the context ends.

        :param wanted: more may come; None for all.
        """

    def now(self) -> datetime | None:
        """The source's clock, by which a position tells how far it has been read; None if it has no log."""


#: makes the changes of a batch: of rows as the change frame of a full load, the order key of their place in the log,
#: and their source time; without a log the place is None, and each row has an order key of its own
Loading = Callable[["DataFrame", str | None, datetime], "DataFrame"]


@runtime_checkable
class LoadedTable(SourceTable, Protocol):
    """A source table of which single rows can be loaded anew."""

    def alone(self, max_wait: float) -> AbstractContextManager[None]:
        """Keep ingestion from the source until the context ends, if the source can.

        If not, whoever commits second is told that the table has moved.

        :param max_wait: seconds for which a run of it may go on.
        :raises ConflictError: it takes longer.
        """

    def load(self, wanted: Wanted | None, target: IcebergTable, position: Position, changes: Loading) -> TableBatch:
        """Read rows as they are now, as a part of a full load that the log has still to pass.

        :param wanted: more may come; None for all.
        :param target: the table that they go into.
        :param position: where it stands.
        :param changes: is done with the rows when it returns.
        :raises LakecdcError: the table cannot be gone on with from there.
        """


class Source(Protocol):
    """A source. One instance serves one run."""

    def open(self, target: Target, table: IcebergTable) -> SourceTable:
        """The source table of a target.

        :raises LakecdcError: if it is not there or could not feed the target.
        """

    def close(self) -> None:
        """Release connections."""


def open_source(spark: SparkSession, spec: JobSpec) -> Source:
    """Open the source of a spec; its module is imported now, so that its driver is needed only if used."""
    assert spec.source is not None
    found: Source = import_module(f"{__name__}.{spec.source.type}").open_source(spark, spec)
    return found
