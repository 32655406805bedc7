"""Parallel listing, lookup and deletion on a real S3 server."""

from __future__ import annotations

import pytest

from lakecdc.contract.errors import SourceUnavailableError
from lakecdc.maintain.orphans.storage import S3Storage
from local_services.s3 import S3Server
from tests.on_demand import on_demand

pytestmark = pytest.mark.services


def fill(s3: S3Server, folder: str, count: int) -> set[str]:
    """Write small objects, some with odd names, into the server's folder; return their keys."""
    keys = {f"{folder}/data/p={number % 37}/{number:06d} a%20b+é.parquet" for number in range(count)}
    for key in keys:
        path = s3.folder / "lab" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return keys


@pytest.mark.parametrize("count", on_demand((2_000, 50_000), in_ci=(2_000,)))
def test_every_object_is_listed_once(s3: S3Server, count: int) -> None:
    keys = fill(s3, f"listed{count}", count) | fill(s3, f"listed{count}/deeper/and/deeper", 50)
    fill(s3, f"listed{count}_beside", 5)
    storage = S3Storage(s3.properties)
    listed = list(storage.walk(f"s3a://lab/listed{count}"))
    assert sorted(file.location for file in listed) == sorted(f"s3a://lab/{key}" for key in keys)
    assert {file.bytes for file in listed} == {1}
    assert list(storage.walk("s3://lab/nothing/here")) == []
    # a listing that is not read to the end leaves no thread behind
    next(storage.walk(f"s3://lab/listed{count}"))


def test_objects_are_found_and_deleted(s3: S3Server) -> None:
    keys = sorted(fill(s3, "deleted", 1_200))
    storage = S3Storage(s3.properties)
    locations = [f"s3://lab/{key}" for key in keys]
    absent = "s3://lab/deleted/none"
    objects = storage.find([*locations[:50], absent])
    assert sorted(objects) == locations[:50]
    listed = {file.location: file for file in storage.walk("s3://lab/deleted")}
    assert all(listed[location] == file for location, file in objects.items())
    assert storage.delete([*locations[1:], absent]) == 0
    assert [file.location for file in storage.walk("s3://lab/deleted")] == locations[:1]


def test_a_failed_listing_is_reported(s3: S3Server) -> None:
    with pytest.raises(SourceUnavailableError, match="Cannot list"):
        list(S3Storage(s3.properties).walk("s3://nowhere/at/all"))
