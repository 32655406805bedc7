"""Unreferenced files are trashed, restored byte for byte, and deleted after their retention."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.commit import RowChanges
from lakecdc.iceberg.staging import stage_rows
from lakecdc.iceberg.stored_files import move
from lakecdc.maintain.orphans import ledger
from lakecdc.maintain.orphans.search import FOLDER
from tests.lakecdc.maintain.orphans.support import DAY, Attic, age, contents, files, plant
from tests.versions import V3

ORPHANS = (
    "data/00000-1-left-by-a-task.parquet",
    "data/v=a+b%2520/with blank and %25, % and #?.parquet",
    "data/load-6f/part 0.parquet",
    "metadata/left-m0.avro",
    "metadata/snap-9-1-left.avro",
    "metadata/left.stats",
)
OF_OTHERS = ("_delta_log/00000.json", "data/.left.parquet.crc", "metadata/99999-old.metadata.json")


def with_everything(attic: Attic, version: int) -> str:
    """Create a table with every kind of referenced file, all old."""
    name = attic.create(version, "v")
    attic.append(name, 0, 20)
    attic.sql(f"DELETE FROM {{}}.{name} WHERE id = 3")
    attic.sql(f"ALTER TABLE {{}}.{name} CREATE TAG before")
    attic.sql(f"INSERT OVERWRITE {{}}.{name} SELECT * FROM {{}}.{name} WHERE id < 15")
    attic.sql(f"ALTER TABLE {{}}.{name} CREATE BRANCH side")
    attic.sql(f"INSERT INTO {{}}.{name}.branch_side VALUES (100, 'side')")
    attic.sql(f"ALTER TABLE {{}}.{name} ADD PARTITION FIELD bucket(2, id)")
    attic.append(name, 200, 210)
    attic.delete_by_key(name, 202, 204)
    attic.sql(f"DELETE FROM {{}}.{name} WHERE id = 205")
    attic.sql(f"CALL {{}}.system.compute_table_stats(table => '{name}')")
    attic.sql(f"CALL {{}}.system.compute_partition_stats(table => '{name}')")
    age(attic.path(name))
    return name


def states(attic: Attic, name: str) -> list[Any]:
    """Return the rows of every branch, tag and snapshot."""
    snapshots = attic.sql(f"SELECT snapshot_id FROM {{}}.{name}.snapshots ORDER BY committed_at").collect()
    moments = ["'before'", "'side'", *(str(row[0]) for row in snapshots)]
    return [
        sorted(tuple(row) for row in attic.sql(f"SELECT * FROM {{}}.{name} VERSION AS OF {moment}").collect())
        for moment in moments
    ]


@V3
def test_orphans_are_trashed_and_restored(attic: Attic, version: int) -> None:
    name = with_everything(attic, version)
    folder, rows = attic.path(name), states(attic, name)
    stage_rows(attic.table(name), attic.rows(0, 5))
    young = plant(folder, ["data/young.parquet"], 2 * DAY)
    staged = {path for path in files(folder) if path.stat().st_mtime > time.time() - DAY}
    # as written by Hadoop's checksum file system
    staged |= plant(folder, [f"{path.parent.relative_to(folder)}/.{path.name}.crc" for path in staged], 0)
    others = plant(folder, OF_OTHERS)
    live = files(folder) - staged - others - young
    age(folder)
    orphans = plant(folder, ORPHANS) | staged
    plant(folder, ["data/young.parquet"], 2 * DAY)
    before = contents(folder)

    dry = attic.run(name, dry_run=True)
    counted = {path for path in orphans if path.suffix != ".crc"}
    assert (dry.outcome, dry.reason) == ("nothing", "dry run: nothing was changed")
    assert dry.metrics["orphan_files"] == len(counted)
    assert dry.metrics["orphan_bytes"] == sum(path.stat().st_size for path in counted)
    assert dry.metrics["files_too_young"] == 1
    assert contents(folder) == before

    done = attic.run(name)
    assert (done.outcome, done.reason) == ("done", None)
    assert (done.metrics["files_taken"], done.metrics["taken_by"]) == (len(counted), "moved")
    # Hadoop's checksum file is moved with its file
    assert files(folder) == live | others | young
    assert states(attic, name) == rows
    assert attic.run(name).outcome == "nothing"

    back = attic.run(name, action="restore")
    assert (back.outcome, back.metrics["files_restored"]) == ("done", len(counted))
    assert contents(folder) == before
    assert back.metrics["runs"] == [done.metrics["run"]]
    assert attic.run(name, action="restore").outcome == "nothing"


def test_trash_is_deleted_after_its_retention(attic: Attic) -> None:
    name = attic.create(2)
    attic.append(name, 0, 5)
    folder = attic.path(name)
    orphans = plant(folder, ORPHANS)
    assert attic.run(name).metrics["files_taken"] == len(ORPHANS)
    soon, later = time.time() + 6 * DAY, time.time() + 8 * DAY
    plant(folder, ["data/next.parquet"], 4 * DAY)
    age(folder, 4 * DAY)
    waiting = attic.run(name, action="purge", now=soon)
    assert (waiting.outcome, waiting.metrics["files_waiting"]) == ("nothing", len(ORPHANS))
    assert attic.run(name, action="purge", now=later, dry_run=True).metrics["files_due"] == len(ORPHANS)
    # one run does both
    done = attic.run(name, now=later)
    assert (done.metrics["files_deleted"], done.metrics["files_taken"]) == (len(ORPHANS), 1)
    left = [path for path in folder.rglob("*") if path.is_file() and path.name in {o.name for o in orphans}]
    assert left == []
    assert attic.run(name, action="restore", run=done.metrics["run"]).metrics["files_restored"] == 1
    assert (folder / "data/next.parquet").read_bytes() == b"orphan data/next.parquet"
    with pytest.raises(Exception, match="does not exist or has no files left"):
        attic.run(name, action="restore", run=done.metrics["run"])


def test_a_trashed_file_that_is_committed_is_restored(attic: Attic) -> None:
    name = attic.create(3)
    attic.append(name, 0, 5)
    late = stage_rows(attic.table(name), attic.rows(10, 15))
    age(attic.path(name))
    assert attic.run(name).metrics["files_taken"] == 1
    attic.commit(name, RowChanges(late))
    done = attic.run(name, action="purge", now=time.time() + 8 * DAY)
    assert (done.metrics["files_spared"], done.metrics["files_deleted"]) == (1, 0)
    assert attic.sql(f"SELECT count(*) FROM {{}}.{name}").collect()[0][0] == 10


def test_a_killed_run_is_undone(attic: Attic, monkeypatch: pytest.MonkeyPatch) -> None:
    name = attic.create(2)
    attic.append(name, 0, 5)
    plant(attic.path(name), ORPHANS)
    before, moved = contents(attic.path(name)), list[str]()

    def die(table: Any, source: str, target: str) -> bool:
        if len(moved) == 3:
            raise KeyboardInterrupt
        moved.append(source)
        return move(table, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "move", die)
        with pytest.raises(KeyboardInterrupt):
            attic.run(name)
    assert len(contents(attic.path(name))) == len(before) - 3
    assert attic.run(name, action="restore").metrics["files_restored"] == len(ORPHANS)
    assert contents(attic.path(name)) == before


def test_a_new_file_at_the_location_of_a_trashed_one_stays(attic: Attic) -> None:
    name = attic.create(2)
    attic.append(name, 0, 5)
    (orphan,) = plant(attic.path(name), ORPHANS[:1])
    attic.run(name)
    orphan.write_bytes(b"another one")
    report = attic.run(name, action="restore")
    assert report.metrics["files_failed"] == 1 and "could not be moved" in (report.reason or "")
    assert orphan.read_bytes() == b"another one"


def test_documents_with_foreign_files_are_refused(attic: Attic) -> None:
    name, other = attic.create(2), attic.create(2)
    attic.append(other, 0, 5)
    (victim,) = (path for path in files(attic.path(other)) if path.suffix == ".parquet")
    plant(attic.path(name), ORPHANS[:1])
    attic.run(name)
    (document,) = attic.path(name).glob(f"{FOLDER}/runs/*/*.json")
    entry = json.loads(document.read_text())
    document.write_text(json.dumps(entry | {"files": [entry["files"][0] | {"moved_to": f"file:{victim}"}]}))
    for action in ("purge", "restore", "remove"):
        with pytest.raises(InputError, match="is not a list of files that a run trashed from this table"):
            attic.run(name, action=action, now=time.time() + 8 * DAY)
    assert victim.exists()
    document.write_text(json.dumps(entry))
    assert attic.run(name, action="restore").metrics["files_restored"] == 1


def test_data_outside_the_location_is_searched(attic: Attic, tmp_path: Path) -> None:
    elsewhere = tmp_path / "data here"
    name = attic.create(2, write__data__path=f"file:{elsewhere}")
    attic.append(name, 0, 5)
    age(elsewhere)
    orphans = plant(elsewhere, ["left.parquet"]) | plant(attic.path(name), ORPHANS[:1])
    before = contents(elsewhere)
    assert attic.run(name).metrics["files_taken"] == 2
    assert not any(path.exists() for path in orphans)
    assert len(files(elsewhere)) == len(before) - 1
    assert attic.run(name, action="restore").metrics["files_restored"] == 2
    assert contents(elsewhere) == before
