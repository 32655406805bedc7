"""Compare full loads written by tasks with those written by Spark and Iceberg."""

from __future__ import annotations

from collections.abc import Mapping

from lakecdc.contract.report import TableReport
from tests.conftest import Lake


def assert_the_same(lake: Lake, schema: str, reports: Mapping[str, TableReport], columns: str, rows: int) -> None:
    """Assert that loads of one source table have written the same rows.

    :param schema: namespace of the tables.
    :param reports: by table; Spark wrote ``by_spark``, and ``by_tasks`` differs from it only in the name.
    :param columns: to be compared, in SQL.
    :param rows: how many the source has.
    """
    outcomes = {name: (report.outcome, report.metrics.get("full_load_written_by")) for name, report in reports.items()}
    ways = {name: "Spark: forced by the test" if name == "by_spark" else "tasks" for name in reports}
    assert outcomes == {name: ("done", way) for name, way in ways.items()}, [r.reason for r in reports.values()]
    tables = {name: lake.pyiceberg().load_table(f"{schema}.{name}") for name in reports}
    assert tables["by_tasks"].schema().fields == tables["by_spark"].schema().fields
    # texts distinguish -0 from 0, and NaN equals itself
    rows_by_table = {name: sorted(map(repr, lake.duckdb_rows(f"{schema}.{name}", columns))) for name in reports}
    for name in reports:
        assert rows_by_table[name] == rows_by_table["by_spark"], name
    assert len(rows_by_table["by_tasks"]) == rows > 400
    for name, table in tables.items():
        own = table.scan(selected_fields=("_lakecdc_order", "_lakecdc_source_time")).to_arrow()
        assert len(set(map(str, own.to_pylist()))) == 1 and not own["_lakecdc_order"].null_count, name
