"""Space-filling curves, ranks of values on them, and the overlap of files along them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.rewriting import CompactDataFilesOptions, SortDataFilesOptions, SpaceFillingCurve
from lakecdc.maintain.curves import CurveMap, Ranks, place_on
from lakecdc.maintain.geometry import OnCurve
from lakecdc.maintain.selection import compaction_units, sort_units
from lakecdc.metadata.file_facts import FileFacts
from lakecdc.metadata.overlap import Box, KeyRange, box_depth, boxes_joined, hull, overlap_depth

CURVES: tuple[SpaceFillingCurve, ...] = ("zorder", "hilbert")


def cells(columns: int, bits: int) -> np.ndarray[Any, Any]:
    """Return all points of a space, one row per column."""
    return np.stack([axis.ravel() for axis in np.meshgrid(*[np.arange(1 << bits)] * columns)])


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize(("columns", "bits"), [(2, 5), (3, 3), (4, 2), (8, 1)])
def test_every_point_has_a_unique_place(curve: SpaceFillingCurve, columns: int, bits: int) -> None:
    points = cells(columns, bits)
    places = place_on(curve, list(points), bits)
    assert sorted(places.tolist()) == list(range(points.shape[1]))
    steps = np.abs(np.diff(points[:, np.argsort(places)], axis=1)).sum(axis=0)
    assert (curve == "hilbert") == (steps.max() == 1) or bits == 1


def test_z_order_interleaves_bits() -> None:
    assert place_on("zorder", [np.array([0b101]), np.array([0b011])], 3).tolist() == [0b100111]


def test_ranks_follow_the_frequency_of_values() -> None:
    skewed = np.array([0.0] * 500 + list(range(1, 501)))
    ranks = Ranks.of(skewed, 4)
    assert ranks(np.array([0.0, 1.0, 250.0, 500.0, 1e9])).tolist() == [0, 8, 11, 15, 15]
    assert set(Ranks.of(np.array([3, 7] * 50), 4)(np.array([2, 3, 6, 7, 8])).tolist()) == {0, 8}
    assert Ranks.of(np.array([], dtype=np.int64), 4)(np.array([5, 6])).tolist() == [0, 0]


@pytest.mark.parametrize("curve", CURVES)
def test_files_along_a_curve_are_narrow_in_all_columns(curve: SpaceFillingCurve) -> None:
    dice = np.random.default_rng(5)
    numbers, texts = dice.exponential(size=8000) ** 4, [b"order-%09d" % n for n in dice.integers(0, 10**9, 8000)]
    rows = pa.table(
        {
            "unit": pa.array([0, 1] * 4000, pa.int32()),
            "n": pa.array([None if n < 1e-6 else n for n in numbers]),
            "t": pa.array(texts, pa.binary()),
        }
    )
    laid = CurveMap.of(curve, rows.slice(0, 3000), [16, 1])
    places = laid.places(*(column.combine_chunks() for column in rows.columns)).to_numpy()
    assert laid.cuts[1] == [] and len(laid.cuts[0]) == 15
    number = np.searchsorted(laid.cuts[0], places, side="right")
    boxes = []
    for file in range(16):
        chosen = (rows["unit"].to_numpy() == 0) & (number == file)
        assert 150 < chosen.sum() < 350
        ns = numbers[chosen]
        ts = [t for t, c in zip(texts, chosen, strict=True) if c]
        boxes.append((KeyRange(ns.min(), ns.max(), 1), KeyRange(min(ts), max(ts), 1)))
    assert box_depth(boxes) < 1.4


def box(*ends: tuple[int, int], rows: int = 10) -> Box:
    """Return a file's ranges of all columns."""
    return tuple(KeyRange(low, high, rows) for low, high in ends)


def test_depth_of_boxes_grows_with_their_overlap() -> None:
    grid = [box((x, x + 1), (y, y + 1)) for x in range(4) for y in range(4)]
    assert box_depth(grid) == 1.0
    assert box_depth([box((0, 9), (0, 9)) for _ in range(16)]) == pytest.approx(4.0)
    assert box_depth([box((x, x + 1), (0, 9)) for x in range(16)]) == pytest.approx(8.5 / 4)
    assert box_depth([]) == box_depth([()]) == 1.0


def test_boxes_that_overlap_in_all_columns_are_joined() -> None:
    files = [box((0, 5), (0, 5)), box((5, 9), (0, 5)), box((0, 5), (6, 9)), box((4, 6), (4, 7)), box((20, 30), (0, 9))]
    assert sorted(map(sorted, boxes_joined(files[:3]))) == [[0], [1], [2]]
    assert sorted(map(sorted, boxes_joined(files))) == [[0, 1, 2, 3], [4]]
    assert boxes_joined([box((0, 5), (1, 1)), box((3, 9), (1, 1)), box((3, 9), (2, 2))]) == [[0, 1], [2]]
    assert boxes_joined([*files, (KeyRange(None, None, 1), KeyRange(0, 1, 1))]) == [list(range(6))]


def file(size: int, around: Box, by: int = 1) -> FileFacts:
    """Describe a file with one row per byte."""
    file.number = getattr(file, "number", 0) + 1  # type: ignore[attr-defined]
    name = f"f{file.number}"  # type: ignore[attr-defined]
    return FileFacts(name, 0, "{}", size, size, size, added_by=by, box=tuple(replace(r, rows=size) for r in around))


def test_a_table_sorted_by_one_column_is_sorted_along_the_curve_once() -> None:
    strips, options = [file(500, box((x, x + 1), (0, 99))) for x in range(16)], SortDataFilesOptions()
    (unit,), counts = sort_units({(0, ""): strips}, options, 500, [], OnCurve("hilbert"))
    assert len(unit.files) == 16 and counts["overlap_depth_before"] > 2
    grid = [file(500, box((x, x + 1), (y, y + 1)), by=7) for x in range(4) for y in range(4)]
    assert sort_units({(0, ""): grid}, options, 500, [7], OnCurve("hilbert"))[0] == []


def test_new_files_are_sorted_with_the_files_they_overlap() -> None:
    old = [file(500, box((x, x + 1), (0, 99)), by=number) for number, x in enumerate(range(12))]
    new = [file(500, box((10, 20), (0, 99)), by=99) for _ in range(8)]
    (unit,), _ = sort_units({(0, ""): old + new}, SortDataFilesOptions(), 500, range(12), OnCurve("zorder"))
    assert {f.location for f in unit.files} == {f.location for f in [*old[10:], *new]}


def test_neighbours_on_the_curve_stay_together() -> None:
    grid = [file(500, box((x, x + 1), (y, y + 1))) for x in range(4) for y in range(4)]
    ordered = OnCurve("hilbert").ordered(grid)
    steps = [
        sum(abs(a.lower - b.lower) for a, b in zip(left.box, right.box, strict=True))
        for left, right in zip(ordered, ordered[1:], strict=False)
    ]
    assert steps == [1] * 15


def compacted(files: Sequence[FileFacts], target: int, max_group_bytes: int) -> tuple[list[Box], int]:
    """Return the boxes after a compaction whose new files span their inputs, and the number of merged units."""
    options = CompactDataFilesOptions(min_input_files=2, max_group_bytes=max_group_bytes)
    units, _ = compaction_units({(0, ""): list(files)}, options, target, geometry=OnCurve("hilbert"))
    rewritten = {f.location for unit in units for f in unit.files}
    after = [f.box for f in files if f.location not in rewritten]
    for unit in units:
        rows = sum(f.rows for f in unit.files) // unit.outputs
        after += [tuple(replace(r, rows=rows) for r in hull([f.box for f in unit.files]))] * unit.outputs
    return after, sum(len(unit.files) > 1 for unit in units)


def scattered(dice: random.Random) -> list[FileFacts]:
    """Return files of random size and position."""
    files = []
    for _ in range(dice.randrange(2, 40)):
        wide = dice.choice([2, 8, 60])
        around = box(*((low, low + dice.randrange(1, wide)) for low in (dice.randrange(60), dice.randrange(60))))
        files.append(file(dice.choice([50, 300, 950]), around))
    return files


@pytest.mark.parametrize("target", [1000, 100_000])
def test_compaction_deepens_the_overlap_of_no_column(target: int) -> None:
    dice, joined = random.Random(11), 0
    for _ in range(60):
        files = scattered(dice)
        after, units = compacted(files, target, dice.choice([3000, 10**9]))
        joined += units
        for n in range(2):
            assert overlap_depth([b[n] for b in after]) <= overlap_depth([f.box[n] for f in files]) + 1e-3
    assert joined > 60


def test_a_curve_needs_several_columns() -> None:
    for columns in (["a"], ["a", "a"], list("abcdefghi")):
        with pytest.raises(SpecError, match="Cannot sort along a curve"):
            SortDataFilesOptions(columns=tuple(columns), curve="zorder")
    assert SortDataFilesOptions(columns=("a",), curve="linear").curve == "linear"
