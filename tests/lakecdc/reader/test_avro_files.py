"""Avro data files: ranges of blocks, types that Spark cannot write, and files that tasks cannot read."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest

from lakecdc.metadata.names import ROW_ID
from lakecdc.reader.avro_files import AvroFile
from lakecdc.reader.data_files import FileRows
from lakecdc.reader.projection import ReadColumn, UnreadError

ID = ReadColumn(1, "id", "long", True)
TEXT = {"name": "t", "type": "string", "field-id": 3}
LONG = {"name": "id", "type": "long", "field-id": 1}


def described(place: Path, content: bytes, records: int) -> dict[str, Any]:
    """Write a file; return its description for tasks."""
    place.write_bytes(content)
    facts = {"location": str(place), "records": records, "first_row_id": 5000, "sequence_number": 7}
    return {**facts, "constants": None, "deletes": []}


def container(rows: list[dict[str, Any]], *fields: dict[str, Any], codec: str = "deflate") -> bytes:
    """Return a container of rows, in small blocks."""
    schema = {"type": "record", "name": "table", "fields": list(fields)}
    fastavro.writer(stream := io.BytesIO(), schema, rows, codec=codec, sync_interval=4000)
    return stream.getvalue()


@pytest.mark.parametrize("codec", ("null", "deflate", "bzip2", "xz"))
def test_ranges_contain_their_rows(tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakecdc.reader.avro_files._PIECE_BYTES", 10_000)
    numbers = [(number * 2_654_435_761) % 2**40 for number in range(60_000)]
    file = described(tmp_path / "a.avro", container([{"id": number} for number in numbers], LONG, codec=codec), 60_000)
    with open(file["location"], "rb") as stream:
        assert len(AvroFile(stream, "a.avro")._pieces) > 10
    for begin, end in ((0, 60_000), (30_000, 59_999), (7, 8), (0, 0)):
        reading = FileRows(file, (ID,), {}, lineage=True, begin=begin, end=end)
        tables = list(reading)
        assert [row for table in tables for row in table["id"].to_pylist()] == numbers[begin:end]
        assert [row for table in tables for row in table[ROW_ID].to_pylist()] == [*range(5000 + begin, 5000 + end)]
        assert reading.rows == end - begin


def test_attributes_of_avro_define_the_types(tmp_path: Path) -> None:
    micros = 1_577_934_245_123_456
    long = {"type": "long"}
    moment = datetime(2020, 1, 2, 3, 4, 5, 123_456)
    kinds: dict[str, tuple[dict[str, Any], Any, Any]] = {
        "timestamptz": (long | {"logicalType": "timestamp-micros", "adjust-to-utc": True}, micros, moment),
        "timestamp_ns": (long | {"logicalType": "timestamp-nanos"}, micros * 1000, moment),
        "timestamptz_ns": (long | {"logicalType": "timestamp-nanos", "adjust-to-utc": True}, micros * 1000, moment),
        "time": (long | {"logicalType": "time-micros"}, 7, time(microsecond=7)),
        "uuid": ({"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}, b"\xff" * 16, UUID(int=2**128 - 1)),
        "fixed[2]": ({"type": "fixed", "name": "f", "size": 2}, b"ab", b"ab"),
    }
    for number, (kind, (stored, value, expected)) in enumerate(kinds.items()):
        # fastavro writes logical types from Python's values only
        plain = {key: part for key, part in stored.items() if key != "logicalType"}
        content = container([{"c": value}, {"c": None}], {"name": "c", "type": ["null", plain], "field-id": 1})
        content = with_schema(content, {"name": "c", "type": ["null", stored], "field-id": 1})
        column = ReadColumn(1, "c", kind, False)
        (table,) = FileRows(described(tmp_path / f"{number}.avro", content, 2), (column,), {})
        if "tz" in kind:
            expected = expected.replace(tzinfo=UTC)
        assert table.schema.types == [column.field().type] and table["c"].to_pylist() == [expected, None]


def with_schema(content: bytes, *fields: dict[str, Any]) -> bytes:
    """Return a container with another schema in its header."""
    from lakecdc.reader.avro_files import _HEADER

    header: Any = fastavro.schemaless_reader(stream := io.BytesIO(content), _HEADER, None)
    head: Any = fastavro.schemaless_reader(io.BytesIO(container([], *fields)), _HEADER, None)
    header["meta"]["avro.schema"] = head["meta"]["avro.schema"]
    fastavro.schemaless_writer(changed := io.BytesIO(), _HEADER, header)
    return changed.getvalue() + stream.read()


def of(kind: Any, **more: Any) -> bytes:
    """Return a container of one row with the id 1, and other types of its field."""
    return with_schema(container([{"id": 1}], LONG), {"name": "id", "type": kind, "field-id": 1, **more})


WHOLE = container([{"id": number} for number in range(10)], LONG)
BROKEN: dict[str, tuple[Callable[[], bytes], str]] = {
    "no container": (lambda: b"Obj1" * 9, "a.avro"),
    "empty": (lambda: b"", "a.avro"),
    "cut off": (lambda: WHOLE[:-20], "a.avro"),
    "another sync marker": (lambda: WHOLE[:-1] + bytes([WHOLE[-1] ^ 1]), "a.avro"),
    "negative count": (lambda: WHOLE + b"\x01\x00", "a.avro"),
    "fewer rows": (lambda: container([{"id": 1}], LONG), "has 1 rows, not 10"),
    "an unknown logical type": (lambda: of({"type": "long", "logicalType": "timestamp-millis"}), "timestamp-millis"),
    "a union": (lambda: of(["long", "string"]), "union of several types"),
    "another type": (lambda: of("string"), "the column id is int64, and the file stores string"),
    "no ids": (lambda: container([{"id": 1}] * 10, {"name": "id", "type": "long"}), "no field ids"),
    "broken text": (
        lambda: with_schema(container([{"t": b"\xff"}] * 10, LONG | {"name": "t", "type": "bytes"}), TEXT),
        "a",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_files_that_tasks_cannot_read_are_refused(tmp_path: Path, what: str) -> None:
    content, message = BROKEN[what]
    records = 1 if what in ("a union", "another type", "an unknown logical type") else 10
    column = ReadColumn(3, "t", "string", True) if what == "broken text" else ID
    with pytest.raises(UnreadError, match=message):
        list(FileRows(described(tmp_path / "a.avro", content(), records), (column,), {}))


def test_blocks_that_are_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakecdc.reader.avro_files._BLOCK_BYTES", 3)
    with pytest.raises(UnreadError, match="more than 3 bytes"):
        list(FileRows(described(tmp_path / "a.avro", WHOLE, 10), (ID,), {}))


def test_files_without_a_needed_column_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadError, match="none of the columns"):
        list(FileRows(described(tmp_path / "a.avro", WHOLE, 10), (ReadColumn(2, "c", "long", False),), {}))
