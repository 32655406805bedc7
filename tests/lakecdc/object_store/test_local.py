"""Files of a local folder as objects with conditional writes."""

from __future__ import annotations

import fcntl
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakecdc.contract.errors import InputError, SourceUnavailableError, UnsupportedError
from lakecdc.object_store import proof
from lakecdc.object_store.local import LocalStorage, local_file_system
from lakecdc.object_store.open_catalog import open_storage
from lakecdc.object_store.storage import Answer
from tests.lakecdc.object_store.storages import check_storage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


@pytest.mark.parametrize("scheme", ["", "file:", "file://", "file://localhost"])
def test_local_files_support_conditional_writes(storage: LocalStorage, tmp_path: Path, scheme: str) -> None:
    check_storage(storage, f"{scheme}{tmp_path}/lake")


def test_local_files_pass_the_proof(storage: LocalStorage, tmp_path: Path) -> None:
    proof.prove(storage, f"file://{tmp_path}", rounds=20)


def test_unfinished_files_are_neither_listed_nor_left(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / ".lakecdc-0123.tmp").write_bytes(b"of a process that was killed")
    storage.create(f"{tmp_path}/lake/a", b"1")
    storage.create(f"{tmp_path}/lake/a", b"2")
    assert [each.location for each in storage.list(f"{tmp_path}/")] == [f"{tmp_path}/lake/a"]
    assert sorted(os.listdir(tmp_path / "lake")) == [".lakecdc-0123.tmp", "a"]


def test_files_have_the_permissions_that_readers_need(storage: LocalStorage, tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        storage.create(f"{tmp_path}/a", b"1")
    finally:
        os.umask(umask)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


def test_a_replace_waits_for_the_lock_of_its_folder(storage: LocalStorage, tmp_path: Path) -> None:
    location = f"{tmp_path}/a"
    storage.create(location, b"1")
    stored = storage.read(location)
    assert stored is not None
    lock = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    answers: list[Answer] = []
    writer = threading.Thread(target=lambda: answers.append(storage.replace(location, b"2", stored.tag)))
    writer.start()
    writer.join(0.2)
    assert answers == []
    # the holder writes meanwhile
    (tmp_path / "a").write_bytes(b"3")
    os.close(lock)
    writer.join()
    assert answers == [Answer.REFUSED]
    assert (tmp_path / "a").read_bytes() == b"3"


def test_threads_lose_no_increment(storage: LocalStorage, tmp_path: Path) -> None:
    location = f"{tmp_path}/counter"
    storage.create(location, b"0")
    with ThreadPoolExecutor(4) as pool:
        for counter in [pool.submit(_count, storage, location, 50) for _ in range(4)]:
            counter.result()
    assert (tmp_path / "counter").read_bytes() == b"200"


def _count(storage: LocalStorage, location: str, times: int) -> None:
    while times:
        stored = storage.read(location)
        assert stored is not None
        times -= storage.replace(location, str(int(stored.body) + 1).encode(), stored.tag) is Answer.WRITTEN


def test_a_write_to_a_full_disk_names_the_remedy(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SourceUnavailableError, match="Cannot write .*Check the rights and the free space"):
        storage.create(f"{tmp_path}/file/below", b"1")


@pytest.mark.parametrize("location", ["lake/a", "file://server/lake", "s3://lab/lake"])
def test_other_locations_are_refused(storage: LocalStorage, location: str) -> None:
    with pytest.raises(InputError, match="is not a local location"):
        storage.create(location, b"1")


@pytest.mark.parametrize(
    "kind", ["nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.s3fs", "virtiofs", "never-heard-of"]
)
def test_file_systems_of_several_machines_are_refused(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        f"40 22 0:50 / /mnt/data\\040lake rw shared:7 - {kind} server:/export rw\n"
        "41 40 8:2 / /mnt/data\\040lake/local rw - xfs /dev/sdb1 rw\n"
    )
    with pytest.raises(UnsupportedError, match=f"file system of type '{kind}'.*Use a local disk"):
        local_file_system(Path("/mnt/data lake/warehouse"), mounts)
    assert local_file_system(Path("/mnt/data lakes"), mounts) == "ext4"
    assert local_file_system(Path("/mnt/data lake/local/warehouse"), mounts) == "xfs"


def test_an_unknown_file_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="Cannot determine the file system"):
        local_file_system(tmp_path, tmp_path / "missing")


@pytest.mark.parametrize("warehouse", ["gs://lake", "abfss://lake@account.dfs.core.windows.net/", "hdfs://node/lake"])
def test_other_stores_are_refused_with_the_supported_ones(warehouse: str) -> None:
    with pytest.raises(UnsupportedError, match="Use s3:// or s3a://.*a local folder"):
        open_storage(warehouse, {})
