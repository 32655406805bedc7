"""What a log leaves that tasks have folded and written, compared with what Spark and Iceberg have."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from lakecdc.contract.report import TableReport
from lakecdc.ingest.job import ingest
from tests.conftest import Lake
from tests.lakecdc.ingest.by_spark import made_by

#: tables by what folds and writes their changes
WAYS = {"by_tasks": "tasks", "by_spark": "spark"}
_COUNTED = (
    *("events_c", "events_u", "events_d", "keys", "rows_written", "completions", "completion_lookups"),
    "history_rows",
)


def by_each_way(
    shop: Any, settings: Callable[[str], dict[str, Any]] = lambda way: {}, **target: Any
) -> dict[str, TableReport]:
    """Feed ``s.t`` into a table for each way.

    :param shop: the source's own.
    :param settings: of the source, besides, for a way.
    :param target: its settings, besides; in texts ``{way}`` stands for the way.
    """
    reports = {}
    for way, engine in WAYS.items():
        own = {k: v.format(way=way) if isinstance(v, str) else v for k, v in target.items()}
        named = {"table": f"{shop.schema}.{way}", "source_table": f"{shop.schema}.t"}
        shop.targets[:] = [{**named, "partition_by": ["bucket(3, id)"], **own}]
        with made_by(engine):
            reports[way] = ingest(shop.lake.spark, shop.spec(**settings(way)))[0]
    return reports


def assert_the_same(lake: Lake, schema: str, reports: Mapping[str, TableReport], columns: str, rows: int) -> None:
    """Assert that tables which were fed from one source table are the same, down to order keys and source times.

    :param schema: namespace of the tables.
    :param reports: by table; that of ``by_spark`` is the one whose changes Spark has folded and written.
    :param columns: to be compared, in SQL.
    :param rows: how many the source has.
    """
    assert {report.outcome for report in reports.values()} == {"done"}, [r.reason for r in reports.values()]
    counted = {name: [report.metrics.get(fact) for fact in _COUNTED] for name, report in reports.items()}
    found = {name: rows_of(lake, f"{schema}.{name}", columns) for name in reports}
    for name in reports:
        assert counted[name] == counted["by_spark"], name
        assert found[name] == found["by_spark"], name
    assert len(found["by_spark"]) == rows


def rows_of(lake: Lake, table: str, columns: str) -> list[str]:
    """The rows of a table with lakecdc's own columns of any table, as sorted texts.

    :param columns: in SQL.
    """
    own = "_lakecdc_order, epoch_us(_lakecdc_source_time)"
    # the texts tell -0 from 0, and NaN equals itself there
    return sorted(map(repr, lake.duckdb_rows(table, f"{columns}, {own}")))


def assert_same_events(lake: Lake, tables: list[str], columns: str, events: int) -> None:
    """Assert that change logs which were fed from one source table are the same.

    :param columns: to be compared, in SQL.
    :param events: how many each must have.
    """
    own = "_lakecdc_op, _lakecdc_unchanged, _lakecdc_old_key"
    found = [rows_of(lake, table, f"{columns}, {own}") for table in tables]
    for one in found:
        assert one == found[0]
    assert len(found[0]) == events


def files_of(lake: Lake, table: str) -> list[tuple[str, str, int]]:
    """Which task wrote a data file (``ingest``, ``events``, ``frame``), its partition and number of rows."""
    files = lake.pyiceberg().load_table(table).inspect.data_files().to_pylist()
    names = [re.sub("^lakecdc-[^/]+/", "", file["file_path"].rpartition("/data/")[2]) for file in files]
    writers = [name.split("-")[0] for name in names]
    return sorted((w, str(file["partition"]), file["record_count"]) for w, file in zip(writers, files, strict=True))
