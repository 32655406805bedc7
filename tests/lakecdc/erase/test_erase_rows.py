"""Erased rows leave no file with their key anywhere, and do not return."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakecdc.contract.errors import InputError
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.erase import job as job_module
from lakecdc.erase import rewrite as rewrite_module
from lakecdc.erase.job import erase_rows
from lakecdc.erase.keys import places
from lakecdc.maintain.orphans.job import RemoveOrphanFiles
from lakecdc.maintain.statistics import compute_statistics
from lakecdc.metadata import names
from lakecdc.metadata.names import DELETES_SUFFIX, POSITIONS_TAG
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed, PlainHistory
from tests.lakecdc.maintain.support import run
from tests.on_demand import on_demand

# one that still exists at the source, one that was deleted there
# (long, so that no other number in a document contains one by chance)
ERASED = (700_218_465_001, 700_218_465_002)
DAY = 24 * 3600


class Planted:
    """A fed table with keys in every kind of place."""

    def __init__(self, lake: Lake, folder: Path, version: int) -> None:
        self.lake, self.name = lake, lake.new_name("erased")
        self.log, self.quarantine = f"{self.name}_history", f"{self.name}_waiting"
        self.report = folder / "documents" / "report.json"
        target = {"format_version": version, "history_table": self.log}
        options = {"quarantine_table": self.quarantine, "max_quarantined_fraction": 1.0}
        self.feed = Feed(lake, folder, target, table=self.name, options=options)
        self.source = PlainHistory(random.Random(3))
        for key in (1, 2, *ERASED, 9):
            self.source.insert(key)
        self.first = list(self.source.events)
        self.feed.take(self.first)
        self.source.update(ERASED[0], touch_doc=True)
        self.source.delete(ERASED[1])
        self.source.update(1, touch_doc=True)
        self.source.update(ERASED[0], touch_doc=True)
        broken = self.source.events[-1]
        broken["value"]["after"]["n"] = "not a number"
        self.feed.take(self.source.events[len(self.first) :])
        self.keys = lake.new_name("keys")
        lake.sql(f"CREATE TABLE lake.{self.keys} AS SELECT explode(array({ERASED[0]}L, {ERASED[1]}L)) AS id")

    def plant(self) -> None:
        """Put keys where ingestion itself puts none."""
        report_entry = {"table": self.name, "reason": "differs", "metrics": {"sample": [json.dumps({"id": ERASED[0]})]}}
        self.report.parent.mkdir()
        self.report.write_text(json.dumps({"job": "check_tables", "tables": [report_entry]}))
        rows = [("app-1", self.name, "differs", json.dumps(report_entry["metrics"])), ("app-2", self.name, None, "{}")]
        audit = self.lake.spark.createDataFrame(rows, "row_id string, `table` string, reason string, metrics string")
        audit.writeTo(f"lake.{names.AUDIT}").create()
        table = self.lake.table(self.name)
        run(self.lake, compute_statistics, self.name)
        # an orphan, moved to the trash
        live = next(f for f in Path(table.location.removeprefix("file:")).rglob("*.parquet") if ERASED[0] in ids(f))
        live.with_name("orphan.parquet").write_bytes(live.read_bytes())
        spec = parse_spec(self.lake.spec("remove_orphan_files", self.name, options={"dry_run": False}))
        removal = RemoveOrphanFiles(clock=lambda: time.time() + 9 * DAY)(table, spec)
        assert removal.metrics["files_taken"] == 1, removal
        self.lake.sql(f"ALTER TABLE lake.{self.name} CREATE TAG old")
        self.lake.sql(f"ALTER TABLE lake.{self.name} CREATE BRANCH aside")

    def erase(self, **options: Any) -> TableReport:
        given = {
            "keys_table": self.keys,
            "history_tables": {self.name: self.log},
            "quarantine_table": self.quarantine,
            "documents_uri": str(self.report.parent),
            "drop_refs": ("old", "asi*"),
            **options,
        }
        return run(self.lake, erase_rows, self.name, **given)

    def tables(self) -> dict[str, str]:
        deletes = self.name + DELETES_SUFFIX
        beside = {"history": self.log, "quarantine": self.quarantine, "remembered_deletes": deletes}
        return {"table": self.name, **beside, "audit": names.AUDIT}

    def kinds_with_keys(self) -> set[str]:
        """Return the kinds of tables with a key in a Parquet file, without using the job's own reader."""
        kinds = set()
        for kind, name in self.tables().items():
            folder = Path(self.lake.table(name).location.removeprefix("file:"))
            texts = {f'{{"k0":{key}}}' for key in ERASED}
            for file in folder.rglob("*.parquet"):
                if ids(file) & set(ERASED) or texts & ids(file, "row_key") or "app-1" in ids(file, "row_id"):
                    kinds.add(kind)
        return kinds


def ids(file: Path, column: str = "id") -> set[Any]:
    read = pq.read_table(file)
    return set(read[column].to_pylist()) if column in read.column_names else set()


def files_with_keys(report: TableReport) -> dict[str, dict[str, int]]:
    files: dict[str, dict[str, int]] = {}
    for place in report.metrics["places"]:
        # other tests may also have left a quarantine with the default name
        files[place["place"]] = files.get(place["place"], {}) | place["files_with_keys"]
    return files


def documents(planted: Planted) -> str:
    """Return the text of all metadata files of all tables, whose summaries and specs may contain values."""
    folders = [Path(planted.lake.table(name).location.removeprefix("file:")) for name in planted.tables().values()]
    return "".join(file.read_text() for folder in folders for file in folder.rglob("*.metadata.json"))


def skip(monkeypatch: pytest.MonkeyPatch, module: object, name: str, result: object) -> None:
    """Leave out a step of the job."""
    monkeypatch.setattr(module, name, lambda *_: result)


NOT_ERASED = MappingProxyType({"rows_erased": 0, "files_rewritten": 0})


def check_without_erasure(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that keys are reported in every place if nothing is erased, or if the snapshots stay."""
    with monkeypatch.context() as patch:
        skip(patch, job_module, "sweep", 0)
        skip(patch, job_module, "drop_statistics", 0)
        skip(patch, job_module, "expire_all", 0)
        with monkeypatch.context() as more:
            skip(more, job_module, "erase", dict(NOT_ERASED))
            failed = planted.erase()
        assert failed.outcome == "failed"
        assert {place for place, kinds in files_with_keys(failed).items() if kinds} == {*planted.tables()}
        with_snapshots = planted.erase()
    assert with_snapshots.outcome == "failed" and {"data", "manifests", "statistics", "trash"} <= {
        *files_with_keys(with_snapshots)["table"]
    }
    assert {place for place, kinds in files_with_keys(with_snapshots).items() if kinds} == {*planted.tables()}


def check_partial_erasure(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that keys are reported if one place, the bounds of deleted files, or the trash is skipped."""
    with monkeypatch.context() as patch:
        skip(patch, job_module, "sweep", 0)
        skip(patch, rewrite_module, "_drop_entries", None)
        patch.setattr(job_module, "places", lambda *given: [p for p in places(*given) if p.kind != "quarantine"])
        failed = planted.erase()
    assert f"1 files of {planted.report.parent}" in (failed.reason or "")
    assert failed.outcome == "failed" and files_with_keys(failed)["table"].keys() == {"manifests", "trash"}
    assert files_with_keys(failed)["history"].keys() == {"manifests"} and "quarantine" not in files_with_keys(failed)
    assert planted.kinds_with_keys() == {"table", "quarantine"}


@pytest.mark.parametrize(
    ("version", "skipped"),
    on_demand([(2, check_without_erasure), (3, check_partial_erasure)], in_ci=[(3, check_partial_erasure)]),
)
def test_keys_are_in_every_place_before_an_erasure_and_in_none_after(
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    skipped: Callable[[Planted, pytest.MonkeyPatch], None],
) -> None:
    monkeypatch.setattr(names, "AUDIT", lake.new_name("audit"))
    planted = Planted(lake, tmp_path, version)
    planted.plant()
    with pytest.raises(InputError, match="tag old of .*"):
        planted.erase(drop_refs=("asi*",))
    dry = planted.erase(dry_run=True)
    before = files_with_keys(dry)
    assert dry.metrics["documents_with_keys"] == [str(planted.report)]
    assert planted.kinds_with_keys() == {*planted.tables()}
    assert {*before["table"]} >= {"data", "deletes", "manifests", "trash"}
    assert all(before[kind].get("data") for kind in planted.tables()), before

    skipped(planted, monkeypatch)
    planted.report.unlink()
    done = planted.erase()
    assert done.metrics["documents_with_keys"] == [] and done.metrics["documents"] == 0
    assert done.outcome == "done", done.reason
    assert not any(files_with_keys(done).values()) and planted.kinds_with_keys() == set()
    texts = documents(planted) + "".join(json.dumps(asdict(report), default=str) for report in (dry, done))
    assert not [key for key in ERASED if str(key) in texts]

    # ingestion continues, and late events do not restore the rows
    refs = lake.table(planted.name).java.refs()
    assert {str(name) for name in refs.keySet()} == {"main", POSITIONS_TAG}
    source = planted.source
    source.insert(10)
    late = planted.feed.take([*planted.first, source.events[-1]])
    assert late.metrics["erased_rows_returned"] == 0
    assert {row[0] for row in planted.feed.rows()} == {1, 2, 9, 10}
    assert planted.kinds_with_keys() == set()
    source.update(ERASED[0], touch_doc=True)
    back = planted.feed.take(source.events[-1:])
    assert ERASED[0] in {row[0] for row in planted.feed.rows()}, "the source still has the row"
    assert back.metrics["erased_rows_returned"] == 1
