"""Selection of files from facts alone, which is empty after the rewrite."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from lakecdc.contract.rewriting import CompactDataFilesOptions, SortDataFilesOptions
from lakecdc.maintain.selection import (
    Unit,
    batches,
    compaction_units,
    sequences,
    sort_units,
    still_written,
)
from lakecdc.metadata.file_facts import FileFacts, Partitions
from lakecdc.metadata.file_sizes import output_count
from lakecdc.metadata.overlap import ColumnBounds, lexicographic_ends

TARGET = 1000
SORT = SortDataFilesOptions()


def file(size: int, deleted: float = 0.0, low: int | None = None, high: int | None = None, by: int = 1) -> FileFacts:
    """Describe a file with one row per byte."""
    file.number = getattr(file, "number", 0) + 1  # type: ignore[attr-defined]
    name = f"f{file.number}"  # type: ignore[attr-defined]
    return FileFacts(name, 0, "{}", size, size, size, int(deleted * size), low, high, added_by=by)


def chosen(*files: FileFacts, **options: float) -> list[Unit]:
    """Return the units of a table with one partition."""
    parsed = CompactDataFilesOptions(**options)  # type: ignore[arg-type]
    return compaction_units({(0, "{}"): list(files)}, parsed, TARGET)[0]


def test_few_small_files_are_left_alone() -> None:
    assert chosen(*[file(10) for _ in range(4)]) == []
    assert chosen(file(10)) == []


def test_many_small_files_are_merged_and_large_ones_left_alone() -> None:
    (unit,) = chosen(*[file(100) for _ in range(5)], file(900))
    assert [f.bytes for f in unit.files] == [100] * 5 and unit.outputs == 1


class Counted(int):
    """A value that counts its comparisons."""

    times = 0

    def __lt__(self, other: int) -> bool:
        Counted.times += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Counted.times += 1
        return int(self) > int(other)

    def __le__(self, other: int) -> bool:
        Counted.times += 1
        return int(self) <= int(other)


def test_files_of_a_large_partition_are_not_compared_pairwise() -> None:
    count = 2000
    small = [file(10, low=Counted(4 * n), high=Counted(4 * n + 1)) for n in range(count)]
    large = [file(900, low=Counted(8 * n + 2), high=Counted(8 * n + 3)) for n in range(count // 2)]
    units = chosen(*small, *large, max_group_bytes=10 * count)
    assert {tuple(f.bytes for f in unit.files) for unit in units} == {(10, 10)}
    assert Counted.times < 200 * count


def test_few_small_files_that_fill_one_are_merged() -> None:
    (unit,) = chosen(file(600), file(600))
    assert (len(unit.files), unit.outputs) == (2, 1)


def test_a_single_file_with_many_deletes_is_rewritten() -> None:
    (unit,) = chosen(file(900, deleted=0.5), file(900), file(900, deleted=0.1))
    assert (len(unit.files), unit.outputs) == (1, 1)
    assert chosen(file(900, deleted=0.5), delete_ratio=0.6) == []


def test_a_large_partition_is_cut_along_the_sort_order() -> None:
    files = [file(100, low=n, high=n + 1) for n in range(20)]
    random.Random(1).shuffle(files)
    units = chosen(*files, max_group_bytes=1000)
    assert [[f.lower for f in unit.files] for unit in units] == [list(range(10)), list(range(10, 20))]


@pytest.mark.parametrize("ratio", [0.5, 0.75, 0.9])
def test_a_second_run_has_nothing_to_do(ratio: float) -> None:
    dice = random.Random(8)
    options = CompactDataFilesOptions(small_file_ratio=ratio)
    for _ in range(300):
        files = [file(dice.randrange(1, 1500), dice.choice([0, 0, 0, 0.4])) for _ in range(dice.randrange(1, 40))]
        units, _ = compaction_units({(0, ""): files}, options, TARGET)
        rewritten = {f.location for unit in units for f in unit.files}
        after: Partitions = {(0, ""): [f for f in files if f.location not in rewritten]}
        for unit in units:
            size = sum(f.live_bytes for f in unit.files) / unit.outputs
            after[0, ""] += [file(int(size)) for _ in range(unit.outputs)]
        assert compaction_units(after, options, TARGET)[0] == []


def test_merged_files_do_not_overlap_another_file() -> None:
    left, middle, right = file(100, low=0, high=9), file(900, low=10, high=19), file(100, low=20, high=29)
    assert chosen(left, middle, right, min_input_files=2) == []
    (unit,) = chosen(left, middle, right, file(100, low=25, high=35), min_input_files=2)
    assert [f.lower for f in unit.files] == [20, 25]


def test_a_file_that_spans_the_gaps_of_many_is_rewritten_with_them() -> None:
    small = [file(20, low=10 * n, high=10 * n + 1) for n in range(1, 9)]
    wide, beside = file(900, low=0, high=100), file(900, low=100, high=200)
    (unit,) = chosen(*small, wide, beside)
    assert {f.location for f in unit.files} == {f.location for f in (*small, wide)}
    assert chosen(*small, wide, beside, min_input_files=9) == []


def test_rows_without_a_key_are_merged_with_others() -> None:
    keyless = [replace(file(100), keyless=True) for _ in range(3)]
    (unit,) = chosen(*keyless, file(100, low=1, high=2), file(100, low=5, high=6), file(900, low=7, high=8))
    assert len(unit.files) == 5


def covering(files: list[FileFacts], key: int) -> int:
    """Count the files whose range contains a key."""
    return sum(f.lower <= key <= f.upper for f in files)


def compacted(files: list[FileFacts], units: list[Unit]) -> list[FileFacts]:
    """Return the files after a rewrite into disjoint ranges."""
    rewritten = {f.location for unit in units for f in unit.files}
    after = [f for f in files if f.location not in rewritten]
    for unit in units:
        low, high = min(f.lower for f in unit.files), max(f.upper for f in unit.files)
        cuts = [low + (high - low) * n // unit.outputs for n in range(unit.outputs + 1)]
        size = int(sum(f.live_bytes for f in unit.files) / unit.outputs)
        after += [file(size, low=a + (n > 0), high=b) for n, (a, b) in enumerate(pairwise(cuts))]
    return after


def test_compaction_does_not_increase_overlap() -> None:
    dice, joined = random.Random(3), 0
    for _ in range(500):
        files = []
        for _ in range(dice.randrange(2, 30)):
            low = dice.randrange(200)
            files.append(file(dice.choice([50, 300, 950]), low=low, high=low + dice.randrange(dice.choice([4, 80]))))
        options = CompactDataFilesOptions(
            min_input_files=dice.randrange(2, 6), max_group_bytes=dice.choice([1500, 10**9])
        )
        units, _ = compaction_units({(0, ""): files}, options, TARGET)
        joined += len(units)
        after = compacted(files, units)
        deeper = [key for key in range(300) if covering(after, key) > max(covering(files, key), 1)]
        assert deeper == []
    assert joined > 300


def located(size: int, low: int, high: int, by: int = 7, bounded: bool = True) -> FileFacts:
    """Describe a file sorted by one column."""
    lower, upper = lexicographic_ends([ColumnBounds(low, high)])
    return replace(file(size, by=by), lower=lower, upper=upper, bounded=bounded)


def test_sorted_files_without_overlap_are_concatenated() -> None:
    files = [located(300, 10 * n, 10 * n + 8) for n in range(8)]
    random.Random(2).shuffle(files)
    units = sequences(chosen(*files), {7}, 0)
    assert all(unit.in_sequence and unit.outputs == 1 for unit in units)
    assert [len(unit.files) for unit in units] == [4, 4]
    lows = [f.lower[0][1] for unit in units for f in unit.files]
    assert lows == sorted(lows) and len(lows) == 8


@pytest.mark.parametrize("odd", [located(300, 78, 99), located(300, 81, 99, by=8), located(300, 81, 99, bounded=False)])
def test_other_files_are_sorted_again(odd: FileFacts) -> None:
    units = chosen(*(located(300, 10 * n, 10 * n + 9) for n in range(8)), odd)
    assert sequences(units, {7}, 0) == units != []
    assert sequences(units[:1], {7, 8}, 1) == units[:1]


def test_concatenated_units_have_separate_commits() -> None:
    units = [Unit((file(1),), 1, in_sequence=n % 2 == 0) for n in range(120)]
    assert [(len(b), b[0].in_sequence) for b in batches(units, 1000)] == [(60, False), (50, True), (10, True)]


def test_output_count_stays_near_the_target() -> None:
    for size in range(1, 20_000, 37):
        average = size / output_count(size, TARGET, 0.75)
        assert average < 1.6 * TARGET and (size < TARGET or average >= 0.75 * TARGET)


def test_only_overlapping_files_are_sorted() -> None:
    apart, over = [file(500, low=0, high=10)], [file(500, low=20, high=30) for _ in range(4)]
    units, counts = sort_units({(0, "a"): apart + over, (0, "b"): [file(500, low=0, high=9)]}, SORT, TARGET)
    assert [len(unit.files) for unit in units] == [4] and units[0].outputs == 2
    assert counts["overlap_depth_before"] == pytest.approx(3.0, abs=0.1)
    assert sort_units({(0, "a"): apart + over}, SortDataFilesOptions(min_overlap_depth=5), TARGET)[0] == []


def test_files_sorted_together_are_not_sorted_again() -> None:
    files = [file(500, by=7) for _ in range(3)]
    assert sort_units({(0, ""): files}, SORT, TARGET, [7])[0] == []
    assert len(sort_units({(0, ""): files}, SORT, TARGET, [8])[0]) == 1
    assert len(sort_units({(0, ""): [*files, file(500, by=9)]}, SORT, TARGET, [7, 9])[0]) == 1


def test_groups_too_large_for_a_commit_are_sorted_in_pieces() -> None:
    files, options = [file(500, low=0, high=6400, by=n) for n in range(64)], SortDataFilesOptions(max_group_bytes=4000)
    depths, written = [], 0.0
    for number in range(1, 6):
        units, counts = sort_units({(0, ""): files}, options, 500, [])
        depths.append(counts["overlap_depth_before"])
        if not units:
            break
        assert all(unit.bytes <= 4000 for unit in units)
        written += sum(unit.bytes for unit in units)
        files = [replace(f, added_by=number * 1000) for f in compacted(files, units)]
    assert depths[0] == 64 and depths[1] == 8 and depths[-1] <= 2.5
    assert written <= 3 * 64 * 500


def test_large_files_are_split_and_files_with_many_equality_deletes_rewritten() -> None:
    large, indebted = file(2600, low=0, high=99), replace(file(900), equality_deletes=4)
    options = CompactDataFilesOptions(max_equality_deletes=3)
    units, counts = compaction_units({(0, "a"): [large], (0, "b"): [indebted]}, options, TARGET, 2500)
    assert sorted((len(unit.files), unit.outputs) for unit in units) == [(1, 1), (1, 3)]
    assert (counts["large_files"], counts["indebted_files"]) == (1, 1)
    assert compaction_units({(0, "a"): [large], (0, "b"): [indebted]}, CompactDataFilesOptions(), TARGET)[0] == []


def test_quiet_partitions_come_first() -> None:
    partitions = {(0, str(n)): [replace(file(100), sequence=n) for _ in range(5)] for n in (3, 1, 2)}
    units, _ = compaction_units(partitions, CompactDataFilesOptions(), TARGET)
    assert [unit.files[0].sequence for unit in units] == [1, 2, 3]
    assert still_written(partitions, 1) == {(0, "2"), (0, "3")}


def test_units_share_a_commit_up_to_its_bytes() -> None:
    units = [Unit((file(size),), 1) for size in (400, 500, 300, 2000, 100)]
    assert [[u.bytes for u in batch] for batch in batches(units, 1000)] == [[400, 500], [300], [2000], [100]]
