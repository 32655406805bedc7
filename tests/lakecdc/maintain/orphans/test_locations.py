"""Locations: one file has one name, and a name too few only ever keeps a file."""

from __future__ import annotations

import pytest

from lakecdc.maintain.orphans.locations import (
    in_object_store,
    is_below,
    is_hidden,
    is_surely_below,
    is_table_metadata,
    key,
    place,
    relative,
)
from lakecdc.maintain.orphans.reachable import HashSet, name_hash


@pytest.mark.parametrize(
    "same",
    [
        (
            "file:///a/b.parquet",
            "file:/a/b.parquet",
            "/a/b.parquet",
            "file://localhost/a/b.parquet",
            "FILE:/a//b.parquet",
        ),
        ("s3://lake/a/b", "s3a://lake/a/b", "s3n://lake//a/b"),
        ("hdfs://nameservice/a", "hdfs://10.0.0.1:8020/a", "hdfs:/a", "viewfs://x/a"),
        ("s3://l/my lake/a", "s3://l/my%20lake/a", "s3a://l/my%2520lake/a"),
        ("s3://l/100%/a", "s3://l/100%25/a"),
        ("s3://l/é", "s3://l/%C3%A9"),
    ],
)
def test_ways_to_write_one_location(same: tuple[str, ...]) -> None:
    assert len({key(location) for location in same}) == 1
    names = HashSet([name_hash(same[0])])
    assert all(name_hash(location) in names for location in same)


@pytest.mark.parametrize(
    ("one", "other"),
    [("/a/b", "/a/c"), ("/a/b", "/a/b/c"), ("/a/p=x+y", "/a/p=x y"), ("/a/B", "/a/b"), ("/a/b%2", "/a/b2")],
)
def test_other_files_have_other_names(one: str, other: str) -> None:
    assert key(one) != key(other)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("file:///wh/t", "file:/wh/t/", True),
        ("/wh/t", "hdfs://nn/wh/t/part", True),
        ("/wh/t", "/wh/t2", False),
        ("s3://lake/t", "s3a://lake/t/inner", True),
        ("s3://lake/t", "s3://other/t", False),
        ("s3://lake", "s3a://lake/t", True),
        ("gs://lake/t", "s3://lake/t", False),
        ("abfss://c@acc.dfs.core.windows.net/t", "wasbs://c@acc.blob.core.windows.net/t", True),
        ("/my lake/t", "file:/my%20lake/t", True),
    ],
)
def test_folders_that_meet(one: str, other: str, meet: bool) -> None:
    assert place(one).meets(place(other)) is place(other).meets(place(one)) is meet


@pytest.mark.parametrize(
    ("location", "folder", "below"),
    [
        ("file:/wh/t/data/x", "file:///wh/t/", True),
        ("hdfs://nn/wh/t/x", "/wh/t", True),
        ("s3a://lake/t/x", "s3://lake/t", True),
        ("abfss://c@acc.dfs.core.windows.net/t/x", "wasbs://c@acc.blob.core.windows.net/t", True),
        ("file:/wh/t2/x", "file:/wh/t", False),
        ("file:/wh/t/../t2/x", "file:/wh/t", False),
        ("file:/wh/t/%2E%2e/t2/x", "file:/wh/t", False),
        ("hdfs://other/wh/t/x", "hdfs://nn/wh/t", False),
        ("s3://other/t/x", "s3://lake/t", False),
        ("s3://lake/t/x", "gs://lake/t", False),
        ("file:/t/x", "s3://lake/t", False),
    ],
)
def test_locations_of_documents_lie_in_the_same_storage(location: str, folder: str, below: bool) -> None:
    assert is_surely_below(location, folder) is below


def test_names_below_a_folder_keep_what_they_are() -> None:
    assert relative("file:/my lake%20/t/data/a b%25.parquet", "file:///my lake%20/t/") == "data/a b%25.parquet"
    assert not is_below("file:/wh/t2/x", "file:/wh/t")
    with pytest.raises(ValueError, match="not below"):
        relative("/wh/t2/x", "/wh/t")


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("data/p=1/a.parquet", False),
        ("_delta_log/00.json", True),
        ("data/.a.parquet.crc", True),
        ("data/_temporary/0/a.parquet", True),
        ("data/_day=2026-01-01/a.parquet", False),
        ("data/_%C3%A9=1/a.parquet", False),
        ("data/_other=1/a.parquet", True),
    ],
)
def test_hidden_names_belong_to_others(name: str, hidden: bool) -> None:
    assert is_hidden(name, {"_day", "_é"}) is hidden


def test_versions_of_table_metadata() -> None:
    found = ["00001-x.metadata.json", "v1.gz.metadata.json", "v1.metadata.json.gz", "metadata/version-hint.text"]
    assert all(map(is_table_metadata, found))
    assert not any(map(is_table_metadata, ["x-m0.avro", "snap-1.avro", "x.stats", "data/metadata.json.parquet"]))


def test_where_files_can_only_be_deleted() -> None:
    assert [in_object_store(f"{scheme}x/t") for scheme in ("s3a://", "GS://", "abfss://", "oss://")] == [True] * 4
    assert [in_object_store(location) for location in ("/t", "file:/t", "hdfs://nn/t", "viewfs:/t")] == [False] * 4


def test_a_set_of_names_takes_each_once_and_more_at_any_time() -> None:
    names = HashSet()
    for _ in range(3):
        names.update(name_hash(f"/t/{number}") for number in range(5000))
    assert len(names) == 5000
    assert all(name_hash(f"file:/t/{number}") in names for number in range(0, 5000, 99))
    assert name_hash("/t/5000") not in names
    names.update([name_hash("/t/5000")])
    assert name_hash("/t/5000") in names and len(names) == 5001
