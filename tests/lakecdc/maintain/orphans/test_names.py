"""Names of files that are left alone, and sets of needed names."""

from __future__ import annotations

import pytest

from lakecdc.maintain.orphans.reachable import HashSet, name_hash
from lakecdc.maintain.orphans.search import is_hidden, is_table_metadata


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


def test_versions_of_table_metadata_are_recognized() -> None:
    names = [
        "00001-x.metadata.json",
        "v1.gz.metadata.json",
        "v1.metadata.json.gz",
        "metadata/version-hint.text",
    ]
    assert all(map(is_table_metadata, names))
    assert not any(map(is_table_metadata, ["x-m0.avro", "snap-1.avro", "x.stats", "data/metadata.json.parquet"]))


def test_a_set_stores_each_name_once_and_can_grow() -> None:
    names = HashSet()
    for _ in range(3):
        names.update(name_hash(f"/t/{number}") for number in range(5000))
    assert len(names) == 5000
    assert all(name_hash(f"file:/t/{number}") in names for number in range(0, 5000, 99))
    assert name_hash("/t/5000") not in names
    names.update([name_hash("/t/5000")])
    assert name_hash("/t/5000") in names and len(names) == 5001
