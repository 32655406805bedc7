"""What the bounds of files in manifests tell of keys."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from lakecdc.erase.decode import Wanted, entries_of

BOUNDS = {"type": "map", "values": "bytes"}
FILE = {
    "type": "record",
    "name": "r2",
    "fields": [
        {"name": "file_path", "type": "string"},
        {"name": "lower_bounds", "type": BOUNDS},
        {"name": "upper_bounds", "type": BOUNDS},
    ],
}
MANIFEST = {"type": "record", "name": "manifest_entry", "fields": [{"name": "data_file", "type": FILE}]}


def manifest(*files: tuple[tuple[bytes, ...], tuple[bytes, ...]]) -> BytesIO:
    """A manifest of files with bounds of the columns 1, 2, …."""

    def bounds(values: tuple[bytes, ...]) -> dict[str, bytes]:
        return {str(number): value for number, value in enumerate(values, 1)}

    records: list[Any] = [
        {"data_file": {"file_path": f"f{n}", "lower_bounds": bounds(low), "upper_bounds": bounds(high)}}
        for n, (low, high) in enumerate(files)
    ]
    stream = BytesIO()
    fastavro.writer(stream, MANIFEST, records)
    stream.seek(0)
    return stream


@pytest.mark.parametrize(
    ("low", "high", "held"),
    [
        ((b"a", b"x"), (b"b", b"z"), True),
        ((b"A", b"x"), (b"a", b"z"), True),
        # each of another key
        ((b"a", b"w"), (b"b", b"y"), False),
        ((b"a", b"w"), (b"b", b"z"), False),
        ((b"a",), (b"b",), False),
    ],
)
def test_bounds_tell_a_key_of_several_columns_by_all_of_them(
    low: tuple[bytes, ...], high: tuple[bytes, ...], held: bool
) -> None:
    wanted = Wanted(pa.table({}), [1, 2], [(b"a", b"x"), (b"c", b"y")])
    assert entries_of(manifest((low, high)), wanted) == (["f0"] if held else [])


def test_bounds_that_were_cut_tell_their_beginning() -> None:
    key = b"0123456789abcdefgh"
    wanted = Wanted(pa.table({}), [1], [(key,)])
    files = [((key[:16],), (b"z",)), ((b"0",), (b"0123456789abcdeg",)), ((b"0",), (b"1",))]
    assert entries_of(manifest(*files), wanted) == ["f0", "f1"]
