"""Orphans are reported with the job that wrote them and its start."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lakecdc.contract.spec import parse_spec
from lakecdc.maintain import rewrite
from lakecdc.maintain.compact import compact_data_files
from lakecdc.runtime import failpoints
from lakecdc.runtime.run import each_table, run
from tests.lakecdc.maintain.orphans.support import Attic, age, files


def test_sources_of_orphans_are_reported(attic: Attic, monkeypatch: pytest.MonkeyPatch) -> None:
    name = attic.create(2)
    for low in range(0, 30, 5):
        attic.append(name, low, low + 5)
    before = files(attic.path(name))
    document = {"version": 1, "job": "compact_data_files", "tables": [name]}
    document["catalog"] = {"name": attic.name, "properties": attic.properties}
    with monkeypatch.context() as dying:
        # a killed run discards nothing
        dying.setattr(rewrite, "discard", lambda *_: None)
        dying.setenv(failpoints.VARIABLE, "rewrite_staged=raise")
        assert run(parse_spec(document), each_table(compact_data_files)).tables[0].outcome == "failed"
    left = [path for path in files(attic.path(name)) - before if path.suffix == ".parquet"]
    assert len(left) == 1
    # younger files are not orphans yet, whatever their folder
    assert attic.run(name).metrics["orphan_writers"] == []
    age(attic.path(name))
    report = attic.run(name)
    context = attic.lake.spark.sparkContext
    assert report.metrics["files_taken"] == 1
    assert report.metrics["orphan_writers"] == [
        {
            "job": "compact_data_files",
            "started": datetime.fromtimestamp(context.startTime // 1000, UTC).isoformat(),
            "application": context.applicationId.replace("-", "")[-12:],
            "files": 1,
            "bytes": report.metrics["orphan_bytes"],
        }
    ]
