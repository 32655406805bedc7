"""Locations: all notations of one file are equal, and different files are never confused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecdc.metadata.locations import (
    canonical,
    in_object_store,
    is_below,
    is_relative,
    is_surely_below,
    key,
    place,
    readings,
    relative,
    resolve,
)


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
        ("s3://l/t/x", "s3://l/t/data/../x", "s3://l/t/./x"),
    ],
)
def test_notations_of_one_location_are_equal(same: tuple[str, ...]) -> None:
    assert len({key(location) for location in same}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [("/a/b", "/a/c"), ("/a/b", "/a/b/c"), ("/a/p=x+y", "/a/p=x y"), ("/a/B", "/a/b"), ("/a/b%2", "/a/b2")],
)
def test_different_files_have_different_names(one: str, other: str) -> None:
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
def test_overlapping_folders_are_recognized(one: str, other: str, meet: bool) -> None:
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


def test_names_below_a_folder_keep_their_encoding() -> None:
    assert relative("file:/my lake%20/t/data/a b%25.parquet", "file:///my lake%20/t/") == "data/a b%25.parquet"
    assert not is_below("file:/wh/t2/x", "file:/wh/t")
    with pytest.raises(ValueError, match="not below"):
        relative("/wh/t2/x", "/wh/t")


def test_object_stores_can_only_delete() -> None:
    assert [in_object_store(f"{scheme}x/t") for scheme in ("s3a://", "GS://", "abfss://", "oss://")] == [True] * 4
    assert [in_object_store(location) for location in ("/t", "file:/t", "hdfs://nn/t", "viewfs:/t")] == [False] * 4


ROOTS = ("file:///wh/my t", "/wh/t", "s3://lake/wh//t", "abfss://c@acc.dfs.core.windows.net/t", "hdfs://nn:8020/wh/t")
NAMES = st.lists(st.text("ab %=.:é", min_size=1, max_size=4), min_size=1, max_size=4).map("/".join).filter(is_relative)
SCHEMES = [("s3", "s3a", "s3n", "S3"), ("abfs", "abfss", "wasb", "wasbs"), ("gs",)]


@given(st.sampled_from(ROOTS), st.sampled_from(["", "/"]), NAMES)
def test_a_relative_location_is_resolved_against_its_table(root: str, slash: str, name: str) -> None:
    absolute = f"{root}/{name}"
    assert resolve(name, root + slash) == absolute == resolve(absolute, "file:/elsewhere")
    assert canonical(name, root + slash) == canonical(absolute) == canonical(absolute, "s3://elsewhere/t")
    assert key(absolute) in {key(reading) for reading in readings(name, root)}
    assert key(absolute) in {key(reading) for reading in readings(f"/{name}", root)}
    assert is_below(resolve(name, root), root)


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True), st.sampled_from(SCHEMES))
def test_objects_are_equal_by_bucket_and_full_name(names: list[str], schemes: tuple[str, ...]) -> None:
    one, other = names
    assert len({canonical(f"{scheme}://lake/{one}") for scheme in schemes}) == 1
    assert canonical(f"s3://lake/{one}") != canonical(f"s3a://lake/{other}")
    assert canonical(f"s3://lake/{one}") != canonical(f"s3://lake2/{one}")
    assert canonical(f"s3://lake/t/{one}") != canonical(f"s3://lake/t//{one}")


@given(NAMES, NAMES)
def test_local_files_are_equal_by_path(one: str, other: str) -> None:
    ways = {canonical(f"{before}/t/{one}") for before in ("file:", "file://", "file://localhost", "FILE:", "")}
    assert ways == {f"/t/{one}"}
    assert (canonical(f"/t/{one}") == canonical(f"file:/t/{other}")) is (one == other)
    assert canonical(f"hdfs://nn/t/{one}") not in (f"/t/{one}", canonical(f"hdfs://other/t/{one}"))


@given(NAMES, st.sampled_from(ROOTS))
def test_equal_files_share_a_key(name: str, root: str) -> None:
    """The key may merge two files, which keeps an orphan, but never splits one, which would remove a live file."""
    assert key(canonical(name, root)) == key(resolve(name, root))


def test_dots_are_part_of_a_bucket() -> None:
    assert not is_surely_below("s3://my.bucket/t/x", "s3://my.other/t")
    assert not place("s3://my.bucket/t").meets(place("s3://my.other/t"))
