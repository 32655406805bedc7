"""What a log leaves that tasks have folded and written, compared with what Spark and Iceberg have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lakecdc.contract.report import TableReport
from lakecdc.ingest.job import ingest
from tests.conftest import Lake

#: tables by what fills them, and the option that has it so
WAYS = {"by_tasks": "auto", "by_jvm": "jvm"}
_COUNTED = ("events_c", "events_u", "events_d", "keys", "rows_written")


def by_each_way(shop: Any, settings: Callable[[str], dict[str, Any]] = lambda way: {}) -> dict[str, TableReport]:
    """Feed ``s.t`` into a table for each way.

    :param shop: the source's own.
    :param settings: of the source, besides, for a way.
    """
    reports = {}
    for way, engine in WAYS.items():
        buckets = ["bucket(3, id)"]
        shop.targets[:] = [
            {"table": f"{shop.schema}.{way}", "source_table": f"{shop.schema}.t", "partition_by": buckets}
        ]
        spec = shop.spec(**settings(way), options={"decode_engine": engine})
        reports[way] = ingest(shop.lake.spark, spec)[0]
    return reports


def assert_the_same(lake: Lake, schema: str, reports: Mapping[str, TableReport], columns: str, rows: int) -> None:
    """Assert that tables which were fed from one source table are the same, down to order keys and source times.

    :param schema: namespace of the tables.
    :param reports: by table; that of ``by_jvm`` is the one whose log was left to the JVM.
    :param columns: to be compared, in SQL.
    :param rows: how many the source has.
    """
    told = {name: (report.outcome, report.metrics.get("decoded_by")) for name, report in reports.items()}
    ways = {name: "jvm: asked for" if name == "by_jvm" else "native" for name in reports}
    assert told == {name: ("done", way) for name, way in ways.items()}, [r.reason for r in reports.values()]
    counted = {name: [report.metrics[fact] for fact in _COUNTED] for name, report in reports.items()}
    own = "_lakecdc_order, epoch_us(_lakecdc_source_time)"
    # the texts tell -0 from 0, and NaN equals itself there
    found = {name: sorted(map(repr, lake.duckdb_rows(f"{schema}.{name}", f"{columns}, {own}"))) for name in reports}
    for name in reports:
        assert counted[name] == counted["by_jvm"], name
        assert found[name] == found["by_jvm"], name
    assert len(found["by_jvm"]) == rows
