"""Read the tables of a source for comparison, one module per type, in the same way as full loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Protocol, runtime_checkable

from pyspark.sql import DataFrame, SparkSession

from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Column
from lakecdc.ingest.current_rows.key_ranges import KeyCondition
from lakecdc.metadata.positions import Position


@dataclass(frozen=True)
class SourceRows:
    """Rows of a source table.

    :param changes: change frame of a full load.
    :param unreadable: number of further rows, which ingestion would quarantine.
    """

    changes: DataFrame
    unreadable: int = 0


class SourceTable(Protocol):
    """A source table."""

    @property
    def key(self) -> tuple[str, ...]:
        """Return the columns that identify a row."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the target's columns."""

    @property
    def ordered(self) -> Mapping[str, str]:
        """Return the columns that can be read by range in Spark's order, with their types."""

    def rows(self, condition: KeyCondition | None) -> AbstractContextManager[SourceRows]:
        """Read rows, valid inside the context: at least those of the condition, or all for None."""

    def now(self) -> datetime | None:
        """Return the source's clock, which read positions refer to; None if it has no log."""


#: builds a batch's changes from the change frame of a full load, the order key of its log position, and its source
#: time; without a log the order key is None, and each row has its own
Loading = Callable[["DataFrame", str | None, datetime], "DataFrame"]


@runtime_checkable
class LoadedTable(SourceTable, Protocol):
    """A source table whose single rows can be reloaded."""

    def alone(self, max_wait: float) -> AbstractContextManager[None]:
        """Keep ingestion from the source inside the context, if the source can; else the second writer fails.

        :param max_wait: seconds to wait for a running ingestion.
        :raises ConflictError: it takes longer.
        """

    def load(self, condition: KeyCondition | None, target: IcebergTable, position: Position, changes: Loading) -> Batch:
        """Read current rows as part of a full load that is ahead of the log.

        :param condition: as for :meth:`rows`.
        :param target: the table to load into.
        :param changes: must not use the rows after it returns.
        :raises LakecdcError: the table cannot be continued from its position.
        """


class Source(Protocol):
    """A source. One instance serves one run."""

    def open(self, target: Target, table: IcebergTable) -> SourceTable:
        """Open the source table of a target; raise a :class:`LakecdcError` if it cannot feed the target."""

    def close(self) -> None:
        """Release connections."""


def open_source(spark: SparkSession, spec: JobSpec) -> Source:
    """Open the source of a spec, importing its module lazily because it may need a driver."""
    assert spec.source is not None
    source: Source = import_module(f"{__name__}.{spec.source.type}").open_source(spark, spec)
    return source
