"""Health is the cost for readers: counts by kind, pairs of delete and data files, and a score."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecdc.metadata.file_facts import Content, LiveFile
from lakecdc.metadata.health import TableHealth, measure_health

TARGET = 1000


def data(sequence: int = 1, size: int = TARGET, scope: str = "a", location: str | None = None) -> LiveFile:
    return LiveFile(Content.DATA, scope, size, 10, sequence, location or f"{scope}/{sequence}/{size}")


def deletes(content: Content, sequence: int, scope: str | None = "a", location: str | None = None) -> LiveFile:
    return LiveFile(content, scope, 1, 3, sequence, location)


def health(*files: LiveFile, snapshots: int = 1, manifests: tuple[int, ...] = (5000,)) -> TableHealth:
    return measure_health(files, target_file_bytes=TARGET, snapshots=snapshots, manifests=manifests)


def test_an_empty_table_has_nothing_to_gain() -> None:
    assert (health().score, health().files_needed) == (100, 0)


def test_files_are_counted_by_size_and_needed_files_by_partition() -> None:
    table = health(*[data(size=size) for size in (10, 200, 800, 1790, 5000)], data(size=1, scope="b"))
    assert table.files_by_size == {"tiny": 2, "small": 1, "fit": 2, "large": 1}
    # one partition has 7800 bytes, the other is tiny but needs its file
    assert table.files_needed == 8 + 1


@pytest.mark.parametrize(
    ("delete", "reads"),
    [
        # only lower sequence numbers, in the partition
        (deletes(Content.EQUALITY_DELETES, 2), 1),
        (deletes(Content.EQUALITY_DELETES, 3), 2),
        # of a spec without partitions: everywhere
        (deletes(Content.EQUALITY_DELETES, 3, None), 3),
        # also the same sequence number
        (deletes(Content.POSITION_DELETES, 2), 2),
        (deletes(Content.POSITION_DELETES, 2, location="first"), 1),
        (deletes(Content.POSITION_DELETES, 2, location="gone"), 0),
        # belongs to exactly one data file (Iceberg specification, deletion vectors)
        (deletes(Content.DELETION_VECTOR, 9), 1),
        (deletes(Content.EQUALITY_DELETES, 9, "elsewhere"), 0),
    ],
)
def test_delete_files_are_paired_with_the_data_files_they_apply_to(delete: LiveFile, reads: int) -> None:
    files = [data(1, location="first"), data(2, location="second"), data(1, scope="b", location="third")]
    assert health(*files, delete).delete_file_reads == reads


def test_a_score_names_its_deductions() -> None:
    table = health(*[data(n, 10) for n in range(1, 41)], *[deletes(Content.EQUALITY_DELETES, 50)] * 4)
    assert table.lost == {"deletes": 22.5, "small_files": 29.2, "overlap": 0.0, "manifests": 0.0, "snapshots": 0.0}
    assert table.score == pytest.approx(100 - 22.5 - 29.2)
    assert table.facts()["score"] == table.score


def test_a_dozen_surplus_files_count_fully_and_a_single_one_hardly() -> None:
    assert health(data(1, 10), data(2, 10)).lost["small_files"] < 2


KINDS = st.sampled_from(list(Content))
FILES = st.lists(
    st.builds(
        LiveFile,
        KINDS,
        st.sampled_from(["a", "b"]),
        st.integers(0, 3000),
        st.integers(0, 50),
        st.integers(0, 9),
        st.none(),
    ),
    max_size=30,
)


@given(FILES, st.integers(1, 10**6), st.lists(st.integers(0, 10**8), max_size=5))
def test_scores_lie_between_0_and_100(files: list[LiveFile], snapshots: int, sizes: list[int]) -> None:
    named = [replace(f, location=str(n)) if f.content is Content.DATA else f for n, f in enumerate(files)]
    table = health(*named, snapshots=snapshots, manifests=tuple(sizes))
    assert 0 <= table.score <= 100
    assert all(points >= 0 for points in table.lost.values())


@given(FILES)
def test_another_equality_delete_never_raises_a_score(files: list[LiveFile]) -> None:
    named = [replace(f, location=str(n)) if f.content is Content.DATA else f for n, f in enumerate(files)]
    assert health(*named, deletes(Content.EQUALITY_DELETES, 5)).score <= health(*named).score


def test_a_puffin_file_with_several_vectors_counts_once() -> None:
    vectors = [replace(deletes(Content.DELETION_VECTOR, 2), bytes=50, puffin=file) for file in ("a", "a", "b")]
    table = health(data(), deletes(Content.EQUALITY_DELETES, 2), *vectors)
    assert (table.deletion_vectors, table.delete_bytes) == (3, 1 + 50 + 50)
