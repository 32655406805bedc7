"""What a full load leaves that tasks have written, compared with what Spark and Iceberg have."""

from __future__ import annotations

from collections.abc import Mapping

from lakecdc.contract.report import TableReport
from tests.conftest import Lake


def assert_the_same(lake: Lake, schema: str, reports: Mapping[str, TableReport], columns: str, rows: int) -> None:
    """Assert that loads of one source table have left the same rows.

    :param schema: namespace of the tables.
    :param reports: by table; that of ``by_spark`` is the one that tasks were told not to write, and ``by_tasks`` has
        the same target but for its name.
    :param columns: to be compared, in SQL.
    :param rows: how many the source has.
    """
    told = {name: (report.outcome, report.metrics.get("full_load_written_by")) for name, report in reports.items()}
    ways = {name: "Spark: told to" if name == "by_spark" else "tasks" for name in reports}
    assert told == {name: ("done", way) for name, way in ways.items()}, [r.reason for r in reports.values()]
    tables = {name: lake.pyiceberg().load_table(f"{schema}.{name}") for name in reports}
    assert tables["by_tasks"].schema().fields == tables["by_spark"].schema().fields
    # the texts tell -0 from 0, and NaN equals itself there
    found = {name: sorted(map(repr, lake.duckdb_rows(f"{schema}.{name}", columns))) for name in reports}
    for name in reports:
        assert found[name] == found["by_spark"], name
    assert len(found["by_tasks"]) == rows > 400
    for name, table in tables.items():
        own = table.scan(selected_fields=("_lakecdc_order", "_lakecdc_source_time")).to_arrow()
        assert len(set(map(str, own.to_pylist()))) == 1 and not own["_lakecdc_order"].null_count, name
