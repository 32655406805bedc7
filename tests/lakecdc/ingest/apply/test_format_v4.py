"""Format version 4 as Iceberg 1.12 writes it: no job adds an equality delete, and resolved deletes work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.errors import SpecError, UnsupportedError
from lakecdc.contract.report import TableReport
from lakecdc.contract.target import parse_targets
from lakecdc.erase.job import erase_rows
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.maintain.manifests import rewrite_manifests
from lakecdc.maintain.set_readers import set_readers
from lakecdc.maintain.sort import sort_data_files
from lakecdc.maintain.tag import tag_snapshots
from lakecdc.metadata.readers import choose_form, equality_refusal, readable_by, refused_by
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import COLUMNS, Feed, PlainHistory, final_rows, in_batches
from tests.lakecdc.maintain.support import append, create, delete_by_key, run, spark_rows

V4 = {"properties": {"format-version": "4"}}


def rows(feed: Feed) -> list[tuple[Any, ...]]:
    """Return the rows that Spark reads: no other engine of the tests reads version 4."""
    return sorted(map(tuple, feed.lake.table(feed.table).read(columns=COLUMNS.split(", ")).collect()), key=str)


@pytest.mark.parametrize("mode", ["upsert", "auto"])
def test_equality_deletes_are_refused_in_version_4(mode: str) -> None:
    target = {"table": "shop.orders", "key": ["id"], "mode": mode, **V4}
    with pytest.raises(SpecError, match=r"shop.orders: It has format version 4.* \"deletes\": \"resolved\""):
        parse_targets(target)
    for other in ({"deletes": "resolved"}, {"mode": "merge"}, {"mode": "append", "key": []}):
        parse_targets({**target, **other})


def test_version_4_is_read_by_spark_and_never_combined_with_equality_deletes() -> None:
    assert equality_refusal(3) is None and equality_refusal(4)
    assert readable_by(4, 0, 1) == ["Apache Spark with Iceberg 1.12"]
    assert "DuckDB 1.5" in refused_by(4, 0, 0)
    assert choose_form(["spark"], (4,)).deletes == "resolved"


def test_ingestion_with_equality_deletes_does_not_change_a_version_4_table(lake: Lake, tmp_path: Path) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "upsert"}), PlainHistory.of(4, 40)
    first, last = in_batches(history, 25)
    feed.take(first)
    lake.sql(f"ALTER TABLE lake.{feed.table} SET TBLPROPERTIES ('format-version'='4')")
    metadata = str(lake.table(feed.table).java.operations().current().metadataFileLocation())
    feed.write(last)
    report = feed.run()
    assert (report.outcome, report.failure_class) == ("unsupported", "bad input")
    assert report.reason == (
        "It has format version 4, which does not allow new equality deletes. "
        'Set "deletes": "resolved" in its target, or use mode merge.'
    )
    assert str(lake.table(feed.table).java.operations().current().metadataFileLocation()) == metadata
    # equality deletes from before the upgrade are converted, then the batch is applied
    feed.target["deletes"] = "resolved"
    assert feed.run().outcome == "done"
    assert rows(feed) == final_rows(history)
    head = lake.table(feed.table).head()
    assert head and head.summary.get("total-equality-deletes") == "0"


def test_no_other_job_commits_an_equality_delete(lake: Lake) -> None:
    name = create(lake, 4)
    append(lake, name, 0, 5)
    with pytest.raises(UnsupportedError, match="does not allow new equality deletes"):
        delete_by_key(lake, name, [1], "new")
    assert len(spark_rows(lake, name)) == 5


def test_resolved_ingestion_and_every_job_keep_the_rows_of_version_4(lake: Lake, tmp_path: Path) -> None:
    log = lake.new_name("log")
    feed = Feed(lake, tmp_path, {"deletes": "resolved", "history_table": log, **V4})
    history = PlainHistory.of(11, 90)
    for batch in in_batches(history, 30, 50, 70):
        feed.take(batch)
    table = lake.table(feed.table)
    assert table.format_version == 4
    assert rows(feed) == final_rows(history)
    assert lake.table(log).read().count() == len(history.events)
    assert {s.summary.get("total-equality-deletes", "0") for s in table.ancestors()} == {"0"}
    assert {row["file_format"] for row in table.metadata("delete_files").collect()} == {"PUFFIN"}
    ids = lake.sql(f"SELECT _row_id FROM lake.{feed.table}").collect()
    assert len({row[0] for row in ids} - {None}) == len(ids)

    def work(job: Any, **options: Any) -> TableReport:
        report = run(lake, job, feed.table, **options)
        assert report.failure_class is None, report.reason
        assert rows(feed) == final_rows(history), job
        return report

    work(tag_snapshots)
    assert work(compact_data_files, min_input_files=2).outcome == "done"
    feed.take(_further(history, 5))
    assert rows(feed) == final_rows(history)
    assert work(sort_data_files, columns=["id"], min_overlap_depth=1).outcome == "done"
    work(rewrite_delete_files)
    work(rewrite_manifests, min_manifests=1)
    work(expire_snapshots, max_age=0, retain_last=1)
    assert work(set_readers, readers=["spark"]).outcome == "done"
    lake.sql(f"CREATE TABLE lake.{log}_keys AS SELECT {final_rows(history)[0][0]}L AS id")
    options = {"keys_table": f"{log}_keys", "history_tables": {feed.table: log}, "drop_refs": ["*"]}
    with pytest.raises(UnsupportedError, match="format version 4, whose metadata files cannot all be decoded"):
        run(lake, erase_rows, feed.table, **options)
    assert rows(feed) == final_rows(history)


def _further(history: PlainHistory, count: int) -> list[dict[str, Any]]:
    begun = len(history.events)
    for _ in range(count):
        history.statement(12)
    return history.events[begun:]
