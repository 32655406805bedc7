"""Tables on a clock that is set forward: what writers leave, and what the tasks of governance DAGs do about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.lakes import Ids, Writer, create
from lakecdc.contract.spec import GOVERN, parse_spec
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.table import IcebergTable
from lakecdc.runtime.run import run, work_of

if TYPE_CHECKING:
    from airflow.sdk import DAG
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from lakecdc.contract.report import TableReport
    from lakecdc.metadata.health import TableHealth
    from lakecdc.metadata.plan import Plan

CATALOG = "lake"
_HOUR_MS = 3_600_000
_MOMENTS = {"timestamp-ms", "last-updated-ms"}


@dataclass
class Fed:
    """A table, and the rows that it should have.

    :param catalog: as workers read it.
    :param name: namespace and name.
    :param rows: names by id.
    """

    spark: SparkSession
    catalog: Catalog
    name: str
    rows: dict[int, str] = field(default_factory=dict)
    _measured: tuple[str, TableHealth] | None = None

    def __post_init__(self) -> None:
        create(self.spark, f"{CATALOG}.{self.name}")

    def append(self, count: int, files: int) -> None:
        """Add rows, by a commit of so many files."""
        low = max(self.rows, default=-1) + 1
        parts = np.array_split(np.arange(low, low + count), files)
        writer = self._writer()
        self._commit(RowChanges([writer.rows(part, "new") for part in parts]))
        self.rows |= {id: f"new {id}" for id in range(low, low + count)}

    def upsert(self, ids: Ids, text: str) -> None:
        """Change rows as ingestion does.

        :param ids: old and new ones.
        """
        writer = self._writer()
        self._commit(RowChanges([writer.rows(ids, text)], [writer.deletes(ids)]))
        self.rows |= {int(id): f"{text} {id}" for id in ids}

    def age(self) -> None:
        """Make all that has happened an hour older."""
        location = self.catalog.load_table(self.name).metadata_location
        path = Path(location.removeprefix("file:").replace("//", "/"))
        path.write_text(json.dumps(_older(json.loads(path.read_text()))))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    @property
    def health(self) -> TableHealth:
        """What workers measure, anew if anything has been committed."""
        from airflow_provider_lakecdc.lake.assess_table import health_of

        table = self.catalog.load_table(self.name)
        if self._measured is None or self._measured[0] != table.metadata_location:
            found = health_of(table)
            assert found is not None
            self._measured = (table.metadata_location, found)
        return self._measured[1]

    def _writer(self) -> Writer:
        return Writer(self._table())

    def _commit(self, changes: RowChanges) -> None:
        append_changes(self._table(), changes, PositionFence(None))

    def _table(self) -> IcebergTable:
        return IcebergTable(self.spark, CATALOG, self.name)


def _older(found: Any) -> Any:
    """Metadata whose moments were an hour earlier."""
    if isinstance(found, list):
        return [_older(each) for each in found]
    if not isinstance(found, dict):
        return found
    return {key: each - _HOUR_MS if key in _MOMENTS else _older(each) for key, each in found.items()}


def governed(dag: DAG, properties: Mapping[str, str]) -> tuple[Plan, list[TableReport]]:
    """Do what the tasks of a governance DAG do, in one application.

    :param properties: of the catalog.
    :return: what was planned, and what came of it.
    """
    from airflow_provider_lakecdc.operators.assess_tables import AssessTablesOperator
    from airflow_provider_lakecdc.operators.plan import PlanOperator, one_task, tasks_of

    assess, plan = dag.get_task("assess"), dag.get_task("plan")
    assert isinstance(assess, AssessTablesOperator) and isinstance(plan, PlanOperator) and plan.options is not None
    found = assess.assessed()
    chosen = plan.chosen(found)
    reports: list[TableReport] = []
    catalog = {"name": CATALOG, "properties": dict(properties)}
    for task in one_task(tasks_of(chosen, found, plan.jobs), plan.options):
        given = task[GOVERN]
        spec = {"version": 1, "job": GOVERN, "catalog": catalog, "tables": given["tables"]}
        report = run(parse_spec({**spec, "options": {"steps": given["steps"]}}), work_of(GOVERN))
        assert report.exit_code() == 0, report
        reports += report.tables
    return chosen, reports
