"""Compare tables fed from a log by tasks with those fed by Spark and Iceberg."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from lakecdc.contract.report import TableReport
from lakecdc.ingest.job import ingest
from tests.conftest import Lake
from tests.lakecdc.ingest.by_spark import with_engine

#: the engine that folds and writes the changes, by table
WAYS = {"by_tasks": "tasks", "by_spark": "spark"}
_COUNTED = (
    *("events_c", "events_u", "events_d", "keys", "rows_written", "completions", "completion_lookups"),
    "history_rows",
)


def by_each_way(
    shop: Any, settings: Callable[[str], dict[str, Any]] = lambda way: {}, **target: Any
) -> dict[str, TableReport]:
    """Feed ``s.t`` into one table per engine.

    :param shop: the tables and targets of the source.
    :param settings: further settings of the source, by table.
    :param target: further settings of the target; ``{way}`` in texts becomes the table's name.
    """
    reports = {}
    for way, engine in WAYS.items():
        own = {k: v.format(way=way) if isinstance(v, str) else v for k, v in target.items()}
        named = {"table": f"{shop.schema}.{way}", "source_table": f"{shop.schema}.t"}
        shop.targets[:] = [{**named, "partition_by": ["bucket(3, id)"], **own}]
        with with_engine(engine):
            reports[way] = ingest(shop.lake.spark, shop.spec(**settings(way)))[0]
    return reports


def assert_the_same(lake: Lake, schema: str, reports: Mapping[str, TableReport], columns: str, rows: int) -> None:
    """Assert that tables fed from one source table are the same, down to order keys and source times.

    :param schema: namespace of the tables.
    :param reports: by table; Spark has folded and written the changes of ``by_spark``.
    :param columns: to be compared, in SQL.
    :param rows: how many the source has.
    """
    assert {report.outcome for report in reports.values()} == {"done"}, [r.reason for r in reports.values()]
    counted = {name: [report.metrics.get(fact) for fact in _COUNTED] for name, report in reports.items()}
    rows_by_table = {name: rows_of(lake, f"{schema}.{name}", columns) for name in reports}
    for name in reports:
        assert counted[name] == counted["by_spark"], name
        assert rows_by_table[name] == rows_by_table["by_spark"], name
    assert len(rows_by_table["by_spark"]) == rows


def rows_of(lake: Lake, table: str, columns: str) -> list[str]:
    """Return the rows of a table with the columns that lakecdc adds to any table, as sorted texts.

    :param columns: in SQL.
    """
    own = "_lakecdc_order, epoch_us(_lakecdc_source_time)"
    # texts distinguish -0 from 0, and NaN equals itself
    return sorted(map(repr, lake.duckdb_rows(table, f"{columns}, {own}")))


def assert_same_events(lake: Lake, tables: list[str], columns: str, events: int) -> None:
    """Assert that change logs fed from one source table are the same.

    :param columns: to be compared, in SQL.
    :param events: how many each must have.
    """
    own = "_lakecdc_op, _lakecdc_unchanged, _lakecdc_old_key"
    rows_by_table = [rows_of(lake, table, f"{columns}, {own}") for table in tables]
    for one in rows_by_table:
        assert one == rows_by_table[0]
    assert len(rows_by_table[0]) == events


def files_of(lake: Lake, table: str) -> list[tuple[str, str, int]]:
    """Return the writing task (``ingest``, ``events``, ``frame``), partition and row count of each data file."""
    files = lake.pyiceberg().load_table(table).inspect.data_files().to_pylist()
    names = [re.sub("^lakecdc-[^/]+/", "", file["file_path"].rpartition("/data/")[2]) for file in files]
    writers = [name.split("-")[0] for name in names]
    return sorted((w, str(file["partition"]), file["record_count"]) for w, file in zip(writers, files, strict=True))
