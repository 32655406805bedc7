"""The report of ingestion shows whether a table has the promised form and freshness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakecdc.maintain.set_readers import set_readers
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed
from tests.lakecdc.ingest.histories import History
from tests.lakecdc.maintain.support import run


def test_a_new_table_gets_the_promised_form_and_an_existing_one_a_warning(lake: Lake, tmp_path: Path) -> None:
    history = History.of(5, 40)
    first, second, third = history.events[:10], history.events[10:30], history.events[30:]
    feed = Feed(lake, tmp_path, {})
    plain = feed.take(first)
    assert "readers" not in plain.metrics and plain.reason is None

    feed.target = {"readers": ["trino", "spark"], "freshness": "99999d"}
    suited = feed.take(second)
    assert suited.reason is None
    assert suited.metrics["readers"] == {
        "names": ["trino", "spark"],
        "form": "format version 2 with equality deletes",
        "why": "Format version 2 with equality deletes, which all its readers can read.",
        "warning": None,
    }

    promised = suited.metrics["freshness_promised_seconds"], suited.metrics["freshness_late_seconds"]
    assert promised == (99999 * 86400.0, 0.0) and "freshness_late_seconds" not in plain.metrics

    feed.target = {"readers": ["databricks"]}
    report = feed.take(third)
    why = "Databricks Runtime 18 cannot read equality deletes, and Databricks Runtime 18 cannot read position deletes"
    assert report.metrics["readers"]["why"] == f"Format version 3 with deletion vectors, because {why}."
    # its equality deletes were converted before the batch
    left = "Databricks Runtime 18 cannot read position deletes"
    warning = f"The table has format version 2, and {left}. Run the job set_readers."
    assert report.reason == report.metrics["readers"]["warning"] == warning
    # a run without new events still reports it
    feed.target = {**feed.target, "freshness": "1s"}
    late = feed.run()
    assert f"{warning}; readers see its source as of " in str(late.reason)
    assert late.metrics["freshness_late_seconds"] > 0

    rows = feed.rows()
    assert run(lake, set_readers, feed.table, readers=["databricks"]).outcome == "done"
    assert feed.rows() == rows
    again: dict[str, Any] = feed.run().metrics["readers"]
    assert again["warning"] is None
    # a new table has the form from the start
    feed = Feed(lake, tmp_path, {"readers": ["databricks"]})
    assert feed.run().outcome == "done"
    assert lake.table(feed.table).format_version == 3
