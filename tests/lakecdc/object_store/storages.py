"""Behaviour shared by all storages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lakecdc.object_store.storage import Answer, Storage


def check_storage(storage: Storage, warehouse: str) -> None:
    """Write, read, list and delete below an empty folder."""
    location, other = f"{warehouse}/a b/x%20y.json", f"{warehouse}/a b/x"
    assert (storage.read(location), storage.exists(location), list(storage.list(warehouse))) == (None, False, [])
    assert storage.replace(location, b"0", '"00000000000000000000000000000000"') is Answer.REFUSED
    assert storage.create(location, b"1") is Answer.WRITTEN
    assert storage.create(location, b"2") is Answer.REFUSED
    first = storage.read(location)
    assert first is not None and first.body == b"1"
    assert storage.replace(location, b"3", '"00000000000000000000000000000000"') is Answer.REFUSED
    assert storage.replace(location, b"345", first.tag) is Answer.WRITTEN
    assert storage.replace(location, b"6", first.tag) is Answer.REFUSED
    second = storage.read(location)
    assert second is not None and second.body == b"345" and second.tag != first.tag
    assert storage.create(other, b"") is Answer.WRITTEN
    # a prefix may end inside a name
    for prefix in (f"{warehouse}/", f"{warehouse}/a", f"{warehouse}/a b/", f"{warehouse}/a b/x"):
        assert {(each.location, each.size) for each in storage.list(prefix)} == {(location, 3), (other, 0)}
    (listed,) = storage.list(f"{warehouse}/a b/x%")
    assert listed.location == location and listed.modified.tzinfo is UTC
    assert abs(datetime.now(UTC) - listed.modified) < timedelta(hours=1)
    storage.delete(location)
    storage.delete(location)
    assert (storage.read(location), storage.exists(other)) == (None, True)
    assert storage.replace(location, b"7", second.tag) is Answer.REFUSED
    storage.delete(other)
    assert list(storage.list(f"{warehouse}/")) == []
