"""Writers, other jobs and users work while the job searches and removes."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest

from lakecdc.contract.errors import ConflictError, UnsupportedError
from lakecdc.iceberg.commit import RowChanges
from lakecdc.iceberg.reachability import read_metadata
from lakecdc.iceberg.staging import stage_rows
from lakecdc.iceberg.stored_files import FileIoStorage, VanishedError
from lakecdc.maintain.orphans import job
from lakecdc.maintain.orphans.reachable import Reachable
from lakecdc.maintain.orphans.search import search
from lakecdc.metadata.policy import ALLOW
from tests.lakecdc.maintain.orphans.support import OLD, Attic, age, files, plant
from tests.lakecdc.maintain.support import meanwhile
from tests.on_demand import on_demand


@pytest.mark.parametrize(
    "moment",
    on_demand(("before_orphans_are_taken", "after_orphans_are_taken"), in_ci=("after_orphans_are_taken",)),
)
def test_old_files_committed_meanwhile_stay(attic: Attic, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    name = attic.create(2)
    attic.append(name, 0, 5)
    late = stage_rows(attic.table(name), attic.rows(10, 15))
    age(attic.path(name))
    plant(attic.path(name), ["data/left.parquet"])
    meanwhile(monkeypatch, moment, lambda: attic.commit(name, RowChanges(late)))
    report = attic.run(name)
    assert (report.metrics["files_taken"], report.metrics["files_spared"]) == (2, 1)
    assert attic.sql(f"SELECT count(*) FROM {{}}.{name}").collect()[0][0] == 10
    assert attic.run(name, action="restore").metrics["files_restored"] == 1


def test_metadata_is_reread_before_each_batch(attic: Attic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "BATCH_FILES", 2)
    name = attic.create(3)
    attic.append(name, 0, 5)
    late = [stage_rows(attic.table(name), attic.rows(10 + n, 15 + n)) for n in range(3)]
    age(attic.path(name))

    def commit() -> None:
        for group in late:
            attic.commit(name, RowChanges(group))

    meanwhile(monkeypatch, "after_orphans_are_taken", commit)
    report = attic.run(name)
    assert (report.metrics["files_taken"], report.metrics["files_spared"]) == (2, 2)
    assert attic.sql(f"SELECT count(*) FROM {{}}.{name}").collect()[0][0] == 20


def test_a_policy_set_during_the_search_is_honoured(attic: Attic, monkeypatch: pytest.MonkeyPatch) -> None:
    name = attic.create(2)
    attic.append(name, 0, 5)
    left = plant(attic.path(name), ["data/left.parquet"])

    def set_meanwhile(*given: Any) -> Any:
        result = search(*given)
        attic.table(name).update_properties({ALLOW: "none"})
        return result

    monkeypatch.setattr(job, "search", set_meanwhile)
    with pytest.raises(UnsupportedError, match="does not allow remove_orphan_files"):
        attic.run(name)
    assert {*left} <= {*files(attic.path(name))}


def test_metadata_removed_by_a_commit_meanwhile_is_tolerated(attic: Attic, monkeypatch: pytest.MonkeyPatch) -> None:
    name = attic.create(2)
    attic.table(name).update_properties({"write.metadata.previous-versions-max": "1"})
    for number in range(3):
        attic.append(name, number, number + 1)
    age(attic.path(name))
    plant(attic.path(name), ["data/left.parquet"])
    first = min(attic.path(name).glob("metadata/*.metadata.json"))
    looked_for = search

    def then_removed(*arguments: Any) -> Any:
        answer = looked_for(*arguments)
        first.unlink()
        return answer

    monkeypatch.setattr(job, "search", then_removed)
    report = attic.run(name)
    assert (report.metrics["files_taken"], report.metrics["metadata_files_beside"]) == (1, 0)
    with pytest.raises(VanishedError, match=first.name):
        read_metadata(attic.table(name), str(first))


def test_files_deleted_during_the_listing_are_reported(attic: Attic) -> None:
    name = attic.create(2)
    plant(attic.path(name), [f"data/{number}.parquet" for number in range(3)])
    listing = FileIoStorage(attic.table(name)).walk(f"{attic.table(name).location}/data")
    next(listing)
    for path in attic.path(name).glob("data/*"):
        path.unlink()
    with pytest.raises(VanishedError):
        list(listing)


def test_a_table_recreated_meanwhile_is_refused(attic: Attic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "BATCH_FILES", 2)
    name = attic.create(2)
    attic.append(name, 0, 5)
    orphans = plant(attic.path(name), [f"data/{number}.parquet" for number in range(4)])

    def anew() -> None:
        attic.sql(f"DROP TABLE {{}}.{name}")
        attic.sql(f"CREATE TABLE {{}}.{name} (id bigint) USING iceberg")

    meanwhile(monkeypatch, "after_orphans_are_taken", anew)
    with pytest.raises(ConflictError, match="dropped and recreated"):
        attic.run(name)
    assert len([path for path in orphans if path.exists()]) == 2
    # the new table has another UUID, and the files of the old one are at its location
    attic.sql(f"DROP TABLE {{}}.{name}")


def test_snapshots_that_expire_meanwhile_are_tolerated(attic: Attic, monkeypatch: pytest.MonkeyPatch) -> None:
    name = attic.create(2)
    for number in range(3):
        attic.append(name, number, number + 1)
    reachable, table = Reachable(attic.table(name)), attic.table(name)
    read, todo, one = reachable._reader._manifests_of, [True], threading.Lock()

    def slowly(snapshot: Any) -> Any:
        with one:
            if todo and todo.pop():
                attic.sql(f"INSERT OVERWRITE {{}}.{name} SELECT * FROM {{}}.{name}")
                attic.sql(f"CALL {{}}.system.expire_snapshots('{name}', TIMESTAMP '2099-01-01 00:00:00', 1)")
        return read(snapshot)

    monkeypatch.setattr(reachable._reader, "_manifests_of", slowly)
    reachable.refresh()
    live = [row[0] for row in table.refresh().metadata("files").select("file_path").collect()]
    assert live and all(location in reachable for location in live)


def test_files_of_a_continuous_writer_stay(attic: Attic) -> None:
    name = attic.create(2)
    attic.append(name, 0, 5)
    stop, errors, written = threading.Event(), list[BaseException](), [0]

    def write() -> None:
        try:
            while not stop.is_set():
                low = 10 * (written[0] + 1)
                attic.append(name, low, low + 5)
                written[0] += 1
                attic.sql(f"DELETE FROM {{}}.{name} WHERE id = {low}")
        except BaseException as error:
            errors.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(2):
            # committed files are old, files being written are not
            for row in attic.table(name).metadata("all_files").select("file_path").collect():
                os.utime(row[0].removeprefix("file:"), (time.time() - OLD,) * 2)
            planted = plant(attic.path(name), [f"data/left {number}.parquet", f"metadata/left {number}-m0.avro"])
            report = attic.run(name)
            assert report.metrics["files_taken"] == len(planted)
            assert not any(path.exists() for path in planted)
            time.sleep(0.5)
    finally:
        stop.set()
        writer.join()
    assert errors == [] and written[0] > 0
    ids = [row[0] for row in attic.sql(f"SELECT id FROM {{}}.{name}").collect()]
    assert len(ids) == len(set(ids)) == 5 + 4 * written[0]
    assert attic.run(name, action="restore").metrics["files_restored"] == 4
    assert len([path for path in files(attic.path(name)) if path.name.startswith("left")]) == 4


def test_files_with_locations_in_another_notation_stay(attic: Attic) -> None:
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    name = attic.create(2)
    attic.append(name, 0, 5)
    properties = {key: value for key, value in attic.properties.items() if key != "type"}
    table = SqlCatalog(attic.name, **properties).load_table(name)
    rows = pa.table({"id": pa.array([10], pa.int64()), "v": ["x"]})
    table.append(rows.cast(table.schema().as_arrow()))
    kinds = {row[0].partition("/")[0:2] for row in attic.table(name).metadata("files").select("file_path").collect()}
    age(attic.path(name))
    report = attic.run(name)
    assert (report.outcome, report.metrics["orphan_files"]) == ("nothing", 0), kinds
    assert table.refresh().scan().to_arrow().num_rows == 6
