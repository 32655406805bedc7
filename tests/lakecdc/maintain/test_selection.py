"""What is chosen, from facts alone; and that choosing again after the rewrite finds nothing."""

from __future__ import annotations

import random

import pytest

from lakecdc.contract.options import CompactDataFilesOptions
from lakecdc.maintain.measure import FileFacts, Partitions
from lakecdc.maintain.selection import Unit, batches, compaction_units, output_count, sort_units

TARGET = 1000


def file(size: int, deleted: float = 0.0, low: int | None = None, high: int | None = None, by: int = 1) -> FileFacts:
    """A file with one row per byte."""
    file.number = getattr(file, "number", 0) + 1  # type: ignore[attr-defined]
    name = f"f{file.number}"  # type: ignore[attr-defined]
    return FileFacts(name, 0, "{}", size, size, size, int(deleted * size), low, high, added_by=by)


def chosen(*files: FileFacts, **options: float) -> list[Unit]:
    """Units of a one-partition table."""
    wanted = CompactDataFilesOptions(**options)  # type: ignore[arg-type]
    return compaction_units({(0, "{}"): list(files)}, wanted, TARGET)[0]


def test_few_small_files_are_left_alone() -> None:
    assert chosen(*[file(10) for _ in range(4)]) == []
    assert chosen(file(10)) == []


def test_many_small_files_are_packed_and_large_ones_left() -> None:
    (unit,) = chosen(*[file(100) for _ in range(5)], file(900))
    assert [f.bytes for f in unit.files] == [100] * 5 and unit.outputs == 1


def test_small_files_that_fill_one_are_packed_however_few() -> None:
    (unit,) = chosen(file(600), file(600))
    assert (len(unit.files), unit.outputs) == (2, 1)


def test_dirty_files_are_rewritten_even_alone() -> None:
    (unit,) = chosen(file(900, deleted=0.5), file(900), file(900, deleted=0.1))
    assert (len(unit.files), unit.outputs) == (1, 1)
    assert chosen(file(900, deleted=0.5), delete_ratio=0.6) == []


def test_a_large_partition_is_cut_along_the_sort_order() -> None:
    files = [file(100, low=n, high=n + 1) for n in range(20)]
    random.Random(1).shuffle(files)
    units = chosen(*files, max_group_bytes=1000)
    assert [[f.lower for f in unit.files] for unit in units] == [list(range(10)), list(range(10, 20))]


@pytest.mark.parametrize("ratio", [0.5, 0.75, 0.9])
def test_a_second_run_finds_nothing(ratio: float) -> None:
    dice = random.Random(8)
    options = CompactDataFilesOptions(small_file_ratio=ratio)
    for _ in range(300):
        files = [file(dice.randrange(1, 1500), dice.choice([0, 0, 0, 0.4])) for _ in range(dice.randrange(1, 40))]
        units, _ = compaction_units({(0, ""): files}, options, TARGET)
        gone = {f.location for unit in units for f in unit.files}
        after: Partitions = {(0, ""): [f for f in files if f.location not in gone]}
        for unit in units:
            size = sum(f.live_bytes for f in unit.files) / unit.outputs
            after[0, ""] += [file(int(size)) for _ in range(unit.outputs)]
        assert compaction_units(after, options, TARGET)[0] == []


def test_output_count_stays_near_the_target() -> None:
    for size in range(1, 20_000, 37):
        average = size / output_count(size, TARGET, 0.75)
        assert average < 1.6 * TARGET and (size < TARGET or average >= 0.75 * TARGET)


def test_sorting_takes_only_what_overlaps() -> None:
    apart, over = [file(500, low=0, high=10)], [file(500, low=20, high=30) for _ in range(4)]
    units, counts = sort_units({(0, "a"): apart + over, (0, "b"): [file(500, low=0, high=9)]}, 1.5, TARGET)
    assert [len(unit.files) for unit in units] == [4] and units[0].outputs == 2
    assert counts["overlap_depth_before"] == pytest.approx(3.0, abs=0.1)
    assert sort_units({(0, "a"): apart + over}, 5, TARGET)[0] == []


def test_files_sorted_together_are_not_sorted_again() -> None:
    files = [file(500, by=7) for _ in range(3)]
    assert sort_units({(0, ""): files}, 1.5, TARGET, [7])[0] == []
    assert len(sort_units({(0, ""): files}, 1.5, TARGET, [8])[0]) == 1
    assert len(sort_units({(0, ""): [*files, file(500, by=9)]}, 1.5, TARGET, [7, 9])[0]) == 1


def test_units_share_a_commit_up_to_its_bytes() -> None:
    units = [Unit((file(size),), 1) for size in (400, 500, 300, 2000, 100)]
    assert [[u.bytes for u in batch] for batch in batches(units, 1000)] == [[400, 500], [300], [2000], [100]]
