"""Every report has figures of the table before and after, as pyiceberg computes them from its manifests."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_lakecdc.lake.assess_table import health_of
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.iceberg.partition_fields import PartitionField
from lakecdc.maintain import numbers
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.numbers import covering, lookup_files
from lakecdc.maintain.sort import sort_data_files
from lakecdc.metadata import health
from lakecdc.metadata.file_facts import FileFacts
from lakecdc.metadata.overlap import ColumnBounds, column_range
from lakecdc.runtime.run import TableWork, each_table
from tests.conftest import Lake
from tests.lakecdc.maintain.support import append, create, delete_by_key, fill
from tests.versions import V3


def file(low: int, high: int) -> FileFacts:
    return FileFacts(f"{low}", 0, "{}", 1, 1, 10, box=(column_range(ColumnBounds(low, high), 10),))


def text(low: str, high: str) -> FileFacts:
    ends = column_range(ColumnBounds(low, high), 10)
    return FileFacts(low, 0, "{}", 1, 1, 10, lower=ends.lower, upper=ends.upper, box=(ends,))


BUCKETS = {0: (PartitionField("id_bucket", 1, "bucket[2]"),), 1: (PartitionField("id_bucket", 1, "bucket[4]"),)}
DAYS = {0: (PartitionField("id_bucket", 1, "bucket[2]"), PartitionField("at_day", 2, "day"))}


@pytest.mark.parametrize(
    ("partitions", "specs", "opened"),
    [
        ({(0, "{}"): [text("a", "m"), text("a", "m"), text("n", "z")]}, {0: ()}, 1.67),
        ({(0, "{}"): [file(0, 9), file(10, 19)]}, {0: ()}, 1.0),
        ({(0, "{}"): [file(0, 9), file(0, 9)]}, {0: ()}, 2.0),
        # a bucket of the key selects one partition
        ({(0, f'{{"id_bucket":{n}}}'): [file(0, 9)] for n in range(2)}, BUCKETS, 1.0),
        # the key does not determine the row's day
        ({(0, f'{{"id_bucket":0,"at_day":{n}}}'): [file(0, 9)] for n in range(3)}, DAYS, 3.0),
        ({(0, f'{{"id_bucket":{n},"at_day":{n}}}'): [file(0, 9)] for n in range(3)}, DAYS, 1.0),
        # nor its bucket in another spec
        ({(0, '{"id_bucket":0}'): [file(0, 9)], (1, '{"id_bucket":3}'): [file(0, 9)]}, BUCKETS, 2.0),
        ({}, {}, 0.0),
    ],
)
def test_look_ups_open_the_files_that_may_have_the_key(partitions: Any, specs: Any, opened: float) -> None:
    assert lookup_files(partitions, specs, [1]) == opened


@pytest.mark.parametrize(
    ("ranges", "opened"),
    [
        ([(0, 9, 5), (10, 19, 5)], 1.0),
        ([(0, 100, 5), (0, 100, 5), (0, 100, 5)], 3.0),
        # ranges that begin and end almost together, in random order
        ([(n, 10_000 + n, 5) for n in range(50)], pytest.approx(50, abs=0.3)),
        ([(0, 100, 5), (50, 150, 5)], 1.5),
        # a file of one key inside another, and two that touch
        ([(0, 100, 100), (50, 50, 100)], 1.5),
        ([(Decimal(1), Decimal(3), 1), (Decimal(2), Decimal(3), 1)], 1.75),
        ([(-(2**63), 2**63 - 1, 1), (0, 2**63 - 1, 1)], pytest.approx(1.75)),
    ],
)
def test_ranges_are_counted_per_key(ranges: Any, opened: float) -> None:
    assert covering(ranges) == opened


def run(lake: Lake, work: TableWork, name: str, **options: Any) -> TableReport:
    job = getattr(work, "__name__")  # noqa: B009
    (report,) = each_table(work)(lake.spark, parse_spec(lake.spec(job, name, options=options)))
    return report


def health_facts(lake: Lake, name: str) -> dict[str, Any]:
    health = health_of(lake.pyiceberg().load_table(name))
    assert health is not None
    return health.facts()


def computed_by_workers(lake: Lake, name: str) -> dict[str, Any]:
    """Return the figures that pyiceberg computes from the same manifests."""
    health = health_of(lake.pyiceberg().load_table(name))
    assert health is not None
    facts = {**asdict(health), "score": health.score}
    return {name: value for name, value in facts.items() if name not in ("target_file_bytes", "snapshots")}


def at(moment: str, report: TableReport, known: dict[str, Any]) -> dict[str, Any]:
    return {name: report.metrics[f"{name}_{moment}"] for name in known}


def opened(lake: Lake, name: str, keys: range) -> float:
    """Return how many data files pyiceberg opens for a key, on average."""
    table = lake.pyiceberg().load_table(name)
    return sum(len(list(table.scan(row_filter=f"id = {key}").plan_files())) for key in keys) / len(keys)


@V3
def test_reports_have_figures_before_and_after(lake: Lake, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    name = create(lake, version, "bucket(2, id)")
    lake.sql(f"ALTER TABLE lake.{name} SET IDENTIFIER FIELDS id")
    fill(lake, name, files=4, rows=100)
    before, opened_before = computed_by_workers(lake, name), opened(lake, name, range(100, 300, 10))
    report = run(lake, sort_data_files, name)
    after = computed_by_workers(lake, name)
    assert (report.outcome, at("before", report, before), at("after", report, after)) == ("done", before, after)
    assert report.metrics["files_by_size_after"] == {"tiny": 2, "small": 0, "fit": 0, "large": 0}
    assert report.metrics["lookup_files_before"] == pytest.approx(opened_before, abs=0.1)
    assert report.metrics["lookup_files_after"] == opened(lake, name, range(100, 300, 10)) == 1.0
    assert report.metrics["overlap_depth_before"] > report.metrics["overlap_depth_after"] == 1.0
    assert report.metrics["files_planned"] == report.metrics["data_files_added"] == 2
    assert report.metrics["bytes_written"] == report.metrics["data_bytes_after"] > 0
    assert report.metrics["core_seconds"] > 0

    delete_by_key(lake, name, [7, 8, 9], text="new")
    before = computed_by_workers(lake, name)
    assert before["equality_delete_files"] > 0
    report = run(lake, rewrite_delete_files, name)
    after = computed_by_workers(lake, name)
    assert (report.outcome, at("before", report, before), at("after", report, after)) == ("done", before, after)
    positional = after["deletion_vectors" if version >= 3 else "position_delete_files"]
    assert after["equality_delete_files"] == 0 < positional
    assert report.metrics["bytes_written"] > 0

    idle = run(lake, rewrite_delete_files, name)
    assert (idle.outcome, idle.metrics["data_files_after"]) == ("nothing", after["data_files"])
    assert (idle.metrics["rows_before"], idle.metrics["delete_files_before"]) == (after["rows"], positional)
    # the manifests of an unchanged table are not needed
    assert not {"score_after", "overlap_depth_after", "numbers_left_out"} & set(idle.metrics)

    monkeypatch.setattr(numbers, "MOST_FILES", 3)
    append(lake, name, 1000, 1010)
    files = computed_by_workers(lake, name)["data_files"]
    large = run(lake, compact_data_files, name, min_input_files=2)
    assert (large.outcome, large.metrics["data_files_before"], large.metrics["data_files_after"]) == ("done", files, 2)
    assert "score_after" not in large.metrics and "more than 3" in large.metrics["numbers_left_out"]
    assert "health" not in large.metrics
    monkeypatch.setattr(health, "MOST_FILES_OF_A_WORKER", 1)
    unchanged = run(lake, compact_data_files, name)
    assert unchanged.outcome == "nothing"
    assert unchanged.metrics["health"].items() > health_facts(lake, name).items()
    assert unchanged.metrics["health"]["maintained_at"] and unchanged.metrics["health"]["written_at"]
    # the next step of an application that also changes nothing does not read the manifests again
    monkeypatch.setattr(numbers, "live_files", None)
    assert run(lake, rewrite_delete_files, name).metrics["health"] == unchanged.metrics["health"]


def test_missing_figures_do_not_fail_the_job(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 3)

    def broken(*_: object) -> None:
        raise OSError("no manifest")

    monkeypatch.setattr(numbers, "from_summary", broken)
    report = run(lake, compact_data_files, name)
    assert report.outcome == "nothing" and "partitions_examined" in report.metrics
