"""Which delete files are as they should be."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.rewriting import RewriteDeleteFilesOptions
from lakecdc.metadata.live_files import Content, LiveFile
from lakecdc.metadata.settled_deletes import are_settled

EQUALITY, POSITIONS, VECTOR = Content.EQUALITY_DELETES, Content.POSITION_DELETES, Content.DELETION_VECTOR
DATA = [LiveFile(Content.DATA, (0, "p"), 100, 10, 3, name) for name in ("a", "b")]


def delete(kind: Content, names: str | None, sequence: int = 4, rows: int = 2) -> LiveFile:
    return LiveFile(kind, (0, "p"), 10, rows, sequence, names)


def settled(version: int, *deletes: LiveFile, **options: Any) -> bool:
    return are_settled([*DATA, *deletes], version, RewriteDeleteFilesOptions(**options))


def test_none_or_one_for_each_data_file() -> None:
    assert settled(2) and settled(3)
    assert settled(2, delete(POSITIONS, "a"), delete(POSITIONS, "b", sequence=3))
    assert settled(3, delete(VECTOR, "a"), delete(VECTOR, "b"))


@pytest.mark.parametrize(
    ("version", "deletes"),
    [
        (2, [delete(EQUALITY, None)]),
        (3, [delete(EQUALITY, None, rows=0)]),
        (2, [delete(POSITIONS, None)]),
        (2, [delete(POSITIONS, "a"), delete(POSITIONS, "a", sequence=5)]),
        (3, [delete(POSITIONS, "a")]),
        (3, [delete(VECTOR, "gone")]),
        (2, [delete(POSITIONS, "a", sequence=2)]),
        (3, [delete(VECTOR, "a", rows=0)]),
    ],
    ids=["equality", "no keys", "of a partition", "two", "no vector", "of no file", "too old", "no rows"],
)
def test_what_a_job_would_change(version: int, deletes: list[LiveFile]) -> None:
    assert not settled(version, *deletes)
    keeps = deletes[0].content is not EQUALITY
    assert settled(version, *deletes, position_deletes="keep") is keeps


def test_several_are_put_up_with_up_to_a_number() -> None:
    two = [delete(POSITIONS, "a"), delete(POSITIONS, "a", sequence=5)]
    assert settled(2, *two, min_input_files=3) and not settled(2, *two, min_input_files=2)
