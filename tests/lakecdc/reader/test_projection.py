"""Reading table columns from files of older schemas or other writers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecdc.model.iceberg_columns import field_id, with_field_id
from lakecdc.reader.data_files import FileRows
from lakecdc.reader.projection import ReadColumn, UnreadError, projection, read_columns

_NUMBERS = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}
_PROMOTED = {"int": "long", "float": "double", "date": "timestamp", "decimal(9, 2)": "decimal(20, 2)"}
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{kind: st.integers(*ends) for kind, ends in _NUMBERS.items()},
    "boolean": st.booleans(),
    "float": st.floats(allow_nan=False, width=32),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=3),
    "binary": st.binary(max_size=3),
    "fixed[2]": st.binary(min_size=2, max_size=2),
    "date": st.dates(),
    "timestamp": st.datetimes(),
    "timestamptz": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ns": st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)),
    "timestamptz_ns": st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    "time": st.times(),
    "uuid": st.uuids(),
    "decimal(9, 2)": st.decimals(-9_999_999, 9_999_999, places=2),
}


def stored(name: str, kind: pa.DataType, number: int | None, *, nullable: bool = True) -> pa.Field:
    """Return a field of a file, with or without a field id."""
    field = pa.field(name, kind, nullable)
    return field if number is None else with_field_id(field, number)


def column(kind: Any, *, required: bool = False, default: Any = None) -> ReadColumn:
    """Return the column that tests read."""
    return ReadColumn(1, "c", kind, required, default)


def read(array: pa.Array, kind: Any) -> pa.ChunkedArray:
    """Return the values of a file's column as a column of the table."""
    schema = pa.schema([stored("c", array.type, 1)])
    return projection(schema, [column(kind)])(pa.RecordBatch.from_arrays([array], schema=schema))["c"]


@pytest.mark.parametrize(
    ("kind", "stored_type"),
    [
        ("int", "int64"),
        ("int", "uint32"),
        ("long", "uint64"),
        ("float", "double"),
        ("double", "int32"),
        ("string", "binary"),
        ("string", "int32"),
        ("date", "int32"),
        ("timestamp", "timestamp[ns]"),
        ("timestamp", "timestamp[ms]"),
        ("timestamp_ns", "timestamp[us]"),
        ("time", "time64[ns]"),
        ("uuid", "binary"),
        ("int", "uint8"),
        ("string", "uuid"),
        ("timestamptz", "date32"),
        ("decimal(9, 2)", "decimal128(12, 2)"),
        ("decimal(12, 2)", "decimal128(9, 3)"),
        ("long", "duration[us]"),
        ({"type": "list", "element-id": 2, "element": "int", "element-required": False}, "int32"),
        ({"type": "struct", "fields": [{"id": 2, "name": "x", "type": "int", "required": False}]}, "int32"),
    ],
)
def test_ambiguous_types_are_left_to_iceberg(kind: Any, stored_type: str) -> None:
    types = {
        "decimal128(12, 2)": pa.decimal128(12, 2),
        "decimal128(9, 3)": pa.decimal128(9, 3),
        "timestamp[ns]": pa.timestamp("ns"),
        "timestamp[ms]": pa.timestamp("ms"),
        "uuid": pa.uuid(),
    }
    with pytest.raises(UnreadError, match=r"^the column c is .*, and the file stores "):
        read(pa.nulls(1, types.get(stored_type) or pa.type_for_alias(stored_type)), kind)


FIELDS: dict[str, Any] = {"type": "struct", "fields": [{"id": 2, "name": "x", "type": "int", "required": False}]}


LONGS = {"type": "list", "element-id": 4, "element": "long", "element-required": False}
TO_LONGS = {
    "type": "map",
    "key-id": 5,
    "key": "string",
    "value-id": 6,
    "value": LONGS | {"element-id": 7},
    "value-required": False,
}


def test_columns_missing_in_a_file_have_their_default() -> None:
    other = pa.schema([stored("o", pa.int32(), 9)])
    rows = pa.RecordBatch.from_arrays([], schema=pa.schema([]))
    assert projection(other, [column("int")])(rows).schema.field("c").type == pa.int32()
    with pytest.raises(UnreadError, match="c is required, and the file lacks it"):
        projection(other, [column("int", required=True)])
    with pytest.raises(UnreadError, match="c has a nested default"):
        projection(other, [column(FIELDS, default={})])
    with pytest.raises(UnreadError, match="none of the members of c"):
        read(pa.array([{"y": 1}]), FIELDS)
    assert projection(other, [column("int", required=True)], constants={1: 7}).leaves == ()


def test_defaults_of_nanoseconds_are_exact() -> None:
    other, rows = pa.schema([stored("o", pa.int32(), 9)]), pa.record_batch({"o": [1]})
    for kind, zone in (("timestamp_ns", ""), ("timestamptz_ns", "+00:00")):
        default = column(kind, default=f"2020-01-02T03:04:05.123456789{zone}")
        assert projection(other, [default])(rows)["c"].cast("int64").to_pylist() == [1_577_934_245_123_456_789]


def test_files_without_ids_need_a_name_mapping() -> None:
    bare = pa.schema([pa.field("a", pa.int32()), pa.field("b", pa.int32())])
    with pytest.raises(UnreadError, match="no field ids"):
        projection(bare, [column("int")])
    mapping = [{"field-id": 1, "names": ["c", "b"]}]
    assert projection(bare, [column("int")], mapping).leaves == (1,)
    # if one field has an id, fields without ids are not table columns
    one = pa.schema([pa.field("c", pa.int32()), stored("b", pa.int32(), 2)])
    assert projection(one, [column("int")], mapping).leaves == ()


def test_ambiguous_field_ids_are_refused() -> None:
    twice = pa.schema([stored("a", pa.int32(), 1), stored("b", pa.int32(), 1)])
    with pytest.raises(UnreadError, match="field id 1"):
        projection(twice, [column("int")])
    other = {"type": "list", "element-id": 2, "element": "int", "element-required": False}
    with pytest.raises(UnreadError, match="element of c has the field id 2, the file's 3"):
        projection(pa.schema([stored("c", pa.list_(stored("element", pa.int32(), 3)), 1)]), [column(other)])


MOMENT = datetime(2020, 1, 2, 3, 4, 5, 678_000)
NESTED: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"id": 2, "name": "l", "required": False, "type": LONGS},
        {"id": 3, "name": "m", "required": False, "type": TO_LONGS},
    ],
}


@pytest.mark.parametrize(
    ("kind", "array", "values"),
    [
        ("int", pa.array([-5, None], pa.int8()), [-5, None]),
        ("long", pa.array([-500], pa.int16()), [-500]),
        ("double", pa.array([0.5, None], pa.float32()), [0.5, None]),
        ("string", pa.array(["a", None], pa.large_string()), ["a", None]),
        ("string", pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        ("binary", pa.array([b"a"], pa.large_binary()), [b"a"]),
        ("timestamptz", pa.array([MOMENT], pa.timestamp("us")), [MOMENT.replace(tzinfo=UTC)]),
        ("timestamptz", pa.array([MOMENT], pa.timestamp("us", "Asia/Tokyo")), [MOMENT.replace(tzinfo=UTC)]),
        ("timestamp", pa.array([date(2020, 1, 2)]), [datetime(2020, 1, 2)]),
        ("timestamp_ns", pa.array([date(2020, 1, 2)]), [datetime(2020, 1, 2)]),
        ("uuid", pa.array([b"\xff" * 16, None], pa.binary(16)), [UUID(int=2**128 - 1), None]),
        ("decimal(20, 2)", pa.array([Decimal("1.50")], pa.decimal128(9, 2)), [Decimal("1.50")]),
    ],
)
def test_other_arrow_forms_of_the_same_values_are_read(kind: str, array: pa.Array, values: list[Any]) -> None:
    assert read(array, kind).to_pylist() == values


def test_slices_of_nested_columns_keep_their_values() -> None:
    longs = pa.list_(stored("element", pa.int32(), 4))
    others = pa.list_(stored("element", pa.int32(), 7))
    pairs = pa.map_(stored("key", pa.string(), 5, nullable=False), stored("value", others, 6))
    rows = [None if n % 3 == 0 else {"l": [n] * n, "m": [(str(n), [n, None]), ("b", None)]} for n in range(9)]
    schema = pa.schema([stored("c", pa.struct([stored("l", longs, 2), stored("m", pairs, 3)]), 1)])
    with BytesIO() as file:
        pq.write_table(pa.Table.from_pylist([{"c": row} for row in rows], schema), file)
        (batch,) = pq.read_table(file).to_batches()
    for begin in range(9):
        part = projection(batch.schema, [column(NESTED)])(batch.slice(begin, 2))["c"]
        part.validate(full=True)
        assert part.to_pylist() == rows[begin : begin + 2] and part.type.field("l").type.value_type == pa.int64()


def test_values_of_the_columns_type_are_not_copied() -> None:
    array = pa.array([1, None, 3], pa.int64())
    assert read(array, "long").chunk(0).buffers()[1].address == array.buffers()[1].address


class Evolution:
    """Random schemas and their changes."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw, self.ids = draw, itertools.count(1)

    def kind(self, depth: int) -> Any:
        """Draw a type."""
        form = self.draw(st.sampled_from(["plain", "plain", "struct", "list", "map"][: 5 if depth else 1]))
        if form == "struct":
            return {"type": "struct", "fields": self.members(depth - 1)}
        if form == "list":
            element = {"element-id": next(self.ids), "element": self.kind(depth - 1)}
            return {"type": "list", **element, "element-required": False}
        if form == "map":
            key = {"key-id": next(self.ids), "key": self.draw(st.sampled_from(["int", "string"]))}
            value = {"value-id": next(self.ids), "value": self.kind(depth - 1), "value-required": False}
            return {"type": "map", **key, **value}
        return self.draw(st.sampled_from(sorted(_VALUES)))

    def members(self, depth: int, *, most: int = 3) -> list[dict[str, Any]]:
        """Draw columns, or members of a struct."""
        return [self.member(depth) for _ in range(self.draw(st.integers(1, most)))]

    def member(self, depth: int) -> dict[str, Any]:
        """Draw a column."""
        number = next(self.ids)
        return {"id": number, "name": f"f{number}", "type": self.kind(depth), "required": False}

    def value(self, kind: Any) -> Any:
        """Draw a value or null; structs by the ids of their members."""
        if self.draw(st.integers(0, 4)) == 0:
            return None
        if isinstance(kind, str):
            return self.draw(_VALUES[kind])
        if kind["type"] == "struct":
            return {f["id"]: self.value(f["type"]) for f in kind["fields"]}
        count = self.draw(st.integers(0, 2))
        if kind["type"] == "list":
            return [self.value(kind["element"]) for _ in range(count)]
        return [(self.draw(_VALUES[kind["key"]]), self.value(kind["value"])) for _ in range(count)]

    def later(self, members: list[dict[str, Any]], *, fewest: int = 0) -> list[dict[str, Any]]:
        """Draw the columns after changes."""
        remaining = [f for f in members if self.draw(st.integers(0, 3))] or members[:fewest]
        changed = [f | {"name": self.name(f), "type": self.later_kind(f["type"])} for f in remaining]
        for _ in range(self.draw(st.integers(0 if changed else 1, 2))):
            added = self.member(0)
            default = self.draw(st.none() | _VALUES[added["type"]])
            # JSON does not support infinities
            if default is not None and str(default).lstrip("-") != "inf":
                added |= {"initial-default": single_value(default), "value": default}
            changed.append(added)
        return self.draw(st.permutations(changed))

    def name(self, member: dict[str, Any]) -> str:
        """Draw the old or a new name."""
        return member["name"] if self.draw(st.booleans()) else f"renamed {member['id']}."

    def later_kind(self, kind: Any) -> Any:
        """Draw the type after changes."""
        if isinstance(kind, str):
            return _PROMOTED.get(kind, kind) if self.draw(st.booleans()) else kind
        if kind["type"] == "struct":
            return kind | {"fields": self.later(kind["fields"], fewest=1)}
        inside = "element" if kind["type"] == "list" else "value"
        return kind | {inside: self.later_kind(kind[inside])}


def single_value(value: Any) -> Any:
    """Return a value in the specification's JSON form."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, UUID):
        return str(value)
    return value.isoformat() if isinstance(value, date | time) else value


def named(value: Any, kind: Any) -> Any:
    """Return a value with the names of a schema, and uuids as bytes."""
    if value is None or isinstance(kind, str):
        return value.bytes if isinstance(value, UUID) else value
    if kind["type"] == "struct":
        return {f["name"]: named(value[f["id"]], f["type"]) for f in kind["fields"]}
    if kind["type"] == "list":
        return [named(one, kind["element"]) for one in value]
    return [(key, named(one, kind["value"])) for key, one in value]


def expected(value: Any, kind: Any) -> Any:
    """Return a value of an older schema in a later one."""
    if value is None:
        return None
    if isinstance(kind, str):
        return datetime(value.year, value.month, value.day) if kind == "timestamp" and type(value) is date else value
    if kind["type"] == "struct":
        return {
            f["name"]: expected(value[f["id"]], f["type"]) if f["id"] in value else f.get("value")
            for f in kind["fields"]
        }
    if kind["type"] == "list":
        return [expected(one, kind["element"]) for one in value]
    return [(key, expected(one, kind["value"])) for key, one in value]


def with_changed_members(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """Return a nested type with changed members, or another type unchanged."""
    if pa.types.is_struct(kind):
        return pa.struct([change(member) for member in kind])
    if pa.types.is_map(kind):
        return pa.map_(change(kind.key_field), change(kind.item_field))
    return pa.list_(change(kind.value_field)) if pa.types.is_list(kind) else kind


def without_ids(field: pa.Field) -> pa.Field:
    """Return a field as a writer without Iceberg stores it."""
    kind = with_changed_members(field.type, without_ids)
    if pa.types.is_list(kind):
        kind = pa.list_(kind.value_field.with_name("item"))
    return field.with_type(kind).remove_metadata()


def with_bytes(field: pa.Field) -> pa.Field:
    """Return a field with bytes for uuids, as Arrow builds nested columns from Python values."""
    kind = with_changed_members(field.type, with_bytes)
    return field.with_type(getattr(kind, "storage_type", kind))


def mapping_of(fields: Iterator[pa.Field]) -> list[dict[str, Any]]:
    """Return the name mapping of a schema."""
    return [{"field-id": field_id(f), "names": [f.name], "fields": mapping_of(inside(f.type))} for f in fields]


def inside(kind: pa.DataType) -> Iterator[pa.Field]:
    """Yield the members of a type."""
    if pa.types.is_map(kind):
        yield from (kind.key_field, kind.item_field)
    elif pa.types.is_struct(kind):
        yield from kind
    elif pa.types.is_list(kind):
        yield kind.value_field


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where examples are written."""
    return tmp_path_factory.mktemp("evolution") / "rows.parquet"


@settings(max_examples=50)
@given(data=st.data())
def test_rows_of_an_older_schema_are_read_in_the_current_one(place: Path, data: st.DataObject) -> None:
    evolution = Evolution(data.draw)
    old: dict[str, Any] = {"type": "struct", "fields": evolution.members(2, most=4)}
    rows = [{f["id"]: evolution.value(f["type"]) for f in old["fields"]} for _ in range(data.draw(st.integers(1, 5)))]
    new: dict[str, Any] = {"type": "struct", "fields": evolution.later(old["fields"])}
    schema = pa.schema([one.field() for one in read_columns(old["fields"])])
    mapped = data.draw(st.booleans())
    written = pa.schema([without_ids(field) for field in schema]) if mapped else schema
    pq.write_table(
        pa.Table.from_pylist([named(row, old) for row in rows], pa.schema(map(with_bytes, written))).cast(written),
        place,
        row_group_size=2,
        store_schema=data.draw(st.booleans()),
    )
    file = {"location": str(place), "records": len(rows), "first_row_id": None, "sequence_number": 1}
    mapping = json.dumps(mapping_of(iter(schema))) if mapped else None
    columns = read_columns(new["fields"])
    reading = FileRows(file | {"constants": None, "deletes": []}, columns, {}, name_mapping=mapping)
    tables = list(reading)
    for table in tables:
        table.validate(full=True)
        assert table.schema.equals(pa.schema([one.field() for one in columns]), check_metadata=True)
    assert [row for table in tables for row in table.to_pylist()] == [expected(row, new) for row in rows]
