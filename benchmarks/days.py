"""Simulate days of writes and governance on a clock that is set forward."""

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
    """A table and its expected rows.

    :param catalog: the catalog as workers read it.
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
        """Append rows in one commit of `files` files."""
        low = max(self.rows, default=-1) + 1
        parts = np.array_split(np.arange(low, low + count), files)
        writer = self._writer()
        self._commit(RowChanges([writer.rows(part, "new") for part in parts]))
        self.rows |= {id: f"new {id}" for id in range(low, low + count)}

    def upsert(self, ids: Ids, text: str) -> None:
        """Upsert rows like ingestion does.

        :param ids: old and new ids.
        """
        writer = self._writer()
        self._commit(RowChanges([writer.rows(ids, text)], [writer.deletes(ids)]))
        self.rows |= {int(id): f"{text} {id}" for id in ids}

    def age(self) -> None:
        """Age the whole history of the table by an hour."""
        location = self.catalog.load_table(self.name).metadata_location
        path = Path(location.removeprefix("file:").replace("//", "/"))
        path.write_text(json.dumps(_older(json.loads(path.read_text()))))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    @property
    def health(self) -> TableHealth:
        """Measure the table's health, again only after a commit."""
        from airflow_provider_lakecdc.lake.assess_table import health_of

        table = self.catalog.load_table(self.name)
        if self._measured is None or self._measured[0] != table.metadata_location:
            measured = health_of(table)
            assert measured is not None
            self._measured = (table.metadata_location, measured)
        return self._measured[1]

    def _writer(self) -> Writer:
        return Writer(self._table())

    def _commit(self, changes: RowChanges) -> None:
        append_changes(self._table(), changes, PositionFence(None))

    def _table(self) -> IcebergTable:
        return IcebergTable(self.spark, CATALOG, self.name)


def _older(value: Any) -> Any:
    """Return metadata with all timestamps moved back by an hour."""
    if isinstance(value, list):
        return [_older(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: each - _HOUR_MS if key in _MOMENTS else _older(each) for key, each in value.items()}


def governed(dag: DAG, properties: Mapping[str, str]) -> tuple[Plan, list[TableReport]]:
    """Run the tasks of a governance DAG in one application.

    :param properties: catalog properties.
    :return: the plan and the reports.
    """
    from airflow_provider_lakecdc.operators.assess_tables import AssessTablesOperator
    from airflow_provider_lakecdc.operators.plan import PlanOperator, one_task, tasks_of

    assess, plan = dag.get_task("assess"), dag.get_task("plan")
    assert isinstance(assess, AssessTablesOperator) and isinstance(plan, PlanOperator) and plan.options is not None
    assessment = assess.assessed()
    chosen = plan.chosen(assessment)
    reports: list[TableReport] = []
    catalog = {"name": CATALOG, "properties": dict(properties)}
    for task in one_task(tasks_of(chosen, assessment, plan.jobs), plan.options):
        given = task[GOVERN]
        spec = {"version": 1, "job": GOVERN, "catalog": catalog, "tables": given["tables"]}
        report = run(parse_spec({**spec, "options": {"steps": given["steps"]}}), work_of(GOVERN))
        assert report.exit_code() == 0, report
        reports += report.tables
    return chosen, reports
