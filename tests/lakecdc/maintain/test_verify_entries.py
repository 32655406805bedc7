"""The proof of rewritten manifests."""

from __future__ import annotations

from lakecdc.maintain.manifests import count_difference, entry_difference
from lakecdc.metadata.manifests import Manifest

ENTRY = {"file_path": "a.parquet", "content_offset": None, "sequence_number": 3, "partition": '{"d":1}'}


def test_entries_that_differ_are_named() -> None:
    assert entry_difference([ENTRY], [ENTRY | {"sequence_number": 4}]) == (
        "a.parquet with sequence_number 4 instead of 3"
    )
    assert entry_difference([ENTRY], []) == "not a.parquet (of 1 entries that are lost or changed)"
    assert entry_difference([], [ENTRY]) == "also a.parquet"
    # vectors in one file are distinguished by their offset
    vectors = [ENTRY | {"content_offset": 4}, ENTRY | {"content_offset": 50, "sequence_number": 5}]
    assert entry_difference(vectors[:1], vectors[1:]).startswith("not a.parquet")


def test_manifest_lists_count_the_same_files() -> None:
    before = [Manifest("a", 0, 10, False, 2), Manifest("b", 0, 10, False, 3), Manifest("c", 0, 10, True, 1)]
    assert count_difference(before, [Manifest("d", 0, 15, False, 5), before[2]]) is None
    assert count_difference(before, [Manifest("d", 0, 15, False, 5)]) == (
        "0 delete files of partition spec 0 instead of 1"
    )
    assert count_difference(before, [Manifest("d", 1, 15, False, 5), before[2]]) == (
        "0 data files of partition spec 0 instead of 5"
    )
