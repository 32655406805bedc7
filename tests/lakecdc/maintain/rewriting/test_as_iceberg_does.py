"""Tables with a history, compacted and sorted by tasks and by Iceberg's reader and writer, are equal."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.definition import current_spec_id
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.jvm import java_list, jvm
from lakecdc.iceberg.staging import WrittenFile, describe
from lakecdc.maintain import rewrite
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.sort import sort_data_files
from lakecdc.reader.projection import read_columns
from tests.conftest import Lake
from tests.lakecdc.maintain.support import create, delete_by_key, duckdb_rows, head, listed_files, run
from tests.on_demand import on_demand

COLUMNS = (
    "id bigint NOT NULL, v string, d int, r float, n decimal(9, 2), at timestamp, local timestamp_ntz, day date, "
    "raw binary, yes boolean, s struct<x: int, y: array<string>>, m map<string, int>, gone string, hole double"
)
# values of every type by id, with nulls, NaN and both zeros; uuids on both sides of Java's sign bit
VALUES = (
    "id, nullif(concat('text ', id % 13), 'text 5') v, cast(id % 2 as int) d, "
    "case id % 7 when 0 then float('NaN') when 1 then float('-0.0') when 2 then null else cast(id as float) end r, "
    "cast(id % 500 / 3 as decimal(9, 2)) n, timestamp_seconds(id * 1000) at, "
    "cast(timestamp_seconds(id) as timestamp_ntz) local, date_add(date'1969-12-01', cast(id % 60 as int)) day, "
    "cast(concat('b', id) as binary) raw, id % 3 = 0 yes, "
    "if(id % 11 = 0, null, named_struct('x', cast(id as int), 'y', array('a', null))) s, "
    "map('k', cast(id as int)) m, 'x' gone, double('NaN') hole, "
    "if(id % 5 = 0, null, format_string('%08x-0000-4000-8000-00000000000a', id * 2654435761 % 4294967296)) u, "
    "array(format_string('%08x-0000-4000-8000-00000000000b', id)) us"
)
#: changes of a table, and the columns that an insert selects afterwards
CHANGES = {
    "rename": ("ALTER TABLE {0} RENAME COLUMN v TO text", {"v": "text"}),
    "widen": ("ALTER TABLE {0} ALTER COLUMN d TYPE bigint", {}),
    "double": ("ALTER TABLE {0} ALTER COLUMN r TYPE double", {}),
    "digits": ("ALTER TABLE {0} ALTER COLUMN n TYPE decimal(20, 2)", {}),
    "drop": ("ALTER TABLE {0} DROP COLUMN gone", {}),
    "nested": ("ALTER TABLE {0} ADD COLUMN s.z double", {}),
    "first": ("ALTER TABLE {0} ALTER COLUMN day FIRST", {}),
    "delete": ("DELETE FROM {0} WHERE id % 17 = 3", {}),
}
#: nanoseconds of a moment of 2001-09-09
DAY = 10**18
STEPS = st.lists(st.sampled_from([*CHANGES, "insert", "orc", "avro", "equality"]), min_size=3, max_size=8)


def with_past(lake: Lake, version: int, steps: list[str], partitioned_by: str) -> str:
    """Create a table of several files with changes in between."""
    name = create(lake, version, partitioned_by, COLUMNS)
    table, done, low = f"lake.{name}", set[str](), 0
    types = jvm(lake.spark).org.apache.iceberg.types.Types
    uuid, update = types.UUIDType.get(), lake.table(name).java.updateSchema()
    # SQL does not have this type
    update.addColumn("u", uuid).addColumn("us", types.ListType.ofOptional(1, uuid)).commit()
    lake.sql(f"REFRESH TABLE {table}")

    def insert() -> None:
        nonlocal low
        rows = lake.sql(f"SELECT {VALUES} FROM (SELECT id * 7 % 2003 + {low} id FROM range(200))")
        if "rename" in done:
            rows = rows.withColumnRenamed("v", "text")
        if "drop" in done:
            rows = rows.drop("gone")
        if "nested" in done:
            kind, z = "struct<x: int, y: array<string>, z: double>", "if(s.x % 3 = 0, double('NaN'), 1.5D)"
            rows = rows.selectExpr(
                "* except (s)", f"cast(if(s is null, null, named_struct('x', s.x, 'y', s.y, 'z', {z})) as {kind}) s"
            )
        types = {field.name: field.dataType for field in lake.spark.table(table).schema.fields}
        rows = rows.select(*[rows[column].cast(kind) for column, kind in types.items()])
        rows.coalesce(1).writeTo(table).append()
        low += 100

    insert()
    for step in steps:
        if step == "insert":
            insert()
        elif step == "equality" and "d" not in partitioned_by:
            delete_by_key(lake, name, range(low, low + 9))
        elif step in ("orc", "avro"):
            formats = "'write.format.default'='{}', 'write.delete.format.default'='parquet'"
            lake.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({formats.format(step)})")
            insert()
            lake.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({formats.format('parquet')})")
        elif step in CHANGES and step not in done:
            lake.sql(CHANGES[step][0].format(table))
            done.add(step)
    insert()
    return name


def state(lake: Lake, name: str, version: int) -> dict[str, Any]:
    """Return the rows with their lineage, and the statistics of the data files."""
    lineage = ", _row_id, _last_updated_sequence_number" if version >= 3 else ""
    rows = sorted(map(repr, lake.sql(f"SELECT *{lineage} FROM lake.{name}").collect()))
    files = [
        {
            "partition": str(file.partition),
            "rows": file.record_count,
            "values": file.value_counts,
            "nulls": file.null_value_counts,
            "nans": file.nan_value_counts,
            "lower": file.lower_bounds,
            "upper": file.upper_bounds,
            "order": file.sort_order_id,
        }
        for file in listed_files(lake, name, 0)
    ]
    return {"rows": rows, "files": sorted(files, key=lambda file: file["partition"])}


def compare(lake: Lake, patch: pytest.MonkeyPatch, version: int, steps: list[str], by: str, job: Any) -> None:
    name = with_past(lake, version, steps, by)
    start, before = head(lake, name), state(lake, name, version)["rows"]
    columns = {"columns": ["id"], "min_overlap_depth": 1.0} if job is sort_data_files else {"min_input_files": 2}
    report = run(lake, job, name, **columns)
    assert report.outcome == "done" and "by_iceberg" not in report.metrics, (report, steps)
    ours, as_read = state(lake, name, version), duckdb_rows(lake, name, "count(*), sum(id)")
    lake.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {start})")
    with patch.context() as patched:
        patched.setattr(rewrite, "refusals", lambda _, __, units: ["to compare"] * len(units))
        assert run(lake, job, name, **columns).metrics["by_iceberg"] == "to compare"
    theirs = state(lake, name, version)
    assert ours["rows"] == theirs["rows"] == before, steps
    assert ours["files"] == theirs["files"], steps
    assert as_read == duckdb_rows(lake, name, "count(*), sum(id)")
    assert len(lake.pyiceberg().load_table(name).scan().to_arrow()) == len(before)


@pytest.mark.parametrize(
    ("version", "by", "job"),
    on_demand(
        [(v, by, job) for v in (2, 3) for by in ("", "d") for job in (compact_data_files, sort_data_files)],
        in_ci=[(2, "d", compact_data_files), (3, "", sort_data_files)],
    ),
)
def test_tables_with_a_history_are_rewritten_as_by_iceberg(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, version: int, by: str, job: Any
) -> None:
    steps = ["rename", "orc", "avro", "delete", "widen", "double", "orc", "digits", "equality", "drop", "nested"]
    steps += ["avro", "first"]
    compare(lake, monkeypatch, version, steps, by, job)


def pyiceberg_rows(lake: Lake, name: str) -> list[str]:
    """Return all rows as pyiceberg reads them, with nanoseconds."""
    return sorted(map(repr, lake.pyiceberg().load_table(name).scan().to_arrow().to_pylist()))


def append_nanoseconds(lake: Lake, name: str, number: int, partition: tuple[str, ...]) -> None:
    """Append a file with rows of one day, as another writer does."""
    table, at = lake.table(name), range(DAY + number, DAY + 1000, 30)
    nano = {
        kind: pa.array([None, *at], pa.int64()).cast(pa.timestamp("ns", zone))
        for kind, zone in (("n", None), ("z", "UTC"))
    }
    columns = {
        "id": pa.array(range(number, 100_000, 1000)[: len(at) + 1], pa.int64()),
        "v": pa.array([f"v{n}" for n in (0, *at)]),
        "t": pa.array([None, *(n % 86_400_000_000 for n in at)], pa.time64("us")),
        **nano,
        "s": pa.StructArray.from_arrays([nano["n"], nano["z"]], ["x", "y"]),
    }
    schema = pa.schema([column.field() for column in read_columns(table.schema_fields)])
    rows = pa.table([columns[f.name].cast(f.type) for f in schema], schema=schema)
    path = lake.folder / f"{name}-{number}.parquet"
    pq.write_table(rows, path)
    written = WrittenFile(f"file:{path}", path.stat().st_size, partition)
    append_changes(table, RowChanges(describe(table, [written], current_spec_id(table))), PositionFence(None))


@pytest.mark.parametrize("by_day", (False, True))
def test_types_that_spark_cannot_read_are_rewritten(lake: Lake, by_day: bool) -> None:
    name = create(lake, 3, columns="id bigint, v string")
    lake.sql(f"INSERT INTO lake.{name} SELECT id, concat('v', id) FROM range(0, 40, 1, 1)")
    lake.sql(f"DELETE FROM lake.{name} WHERE v = 'v7'")
    table, apache = lake.table(name), jvm(lake.spark).org.apache.iceberg
    types, update = apache.types.Types, table.java.updateSchema()
    nano, utc = types.TimestampNanoType.withoutZone(), types.TimestampNanoType.withZone()
    update.addColumn("t", types.TimeType.get()).addColumn("n", nano).addColumn("z", utc)
    members = java_list(lake.spark, [types.NestedField.optional(1, "x", nano), types.NestedField.optional(2, "y", utc)])
    update.addColumn("s", types.StructType.of(members)).commit()
    if by_day:
        table.java.updateSpec().addField(apache.expressions.Expressions.day("n")).commit()
    for number in range(3):
        append_nanoseconds(lake, name, number, ("2001-09-09",) if by_day else ())
    rows = pyiceberg_rows(lake, name)
    table.refresh().update_properties({"write.format.default": "orc"})
    refused = run(lake, compact_data_files, name, min_input_files=2)
    assert refused.outcome == "unsupported", refused
    assert refused.reason == (
        "Cannot rewrite files: write.format.default is orc, and Spark has no type for the column 't' of type time."
    )
    table.refresh().update_properties({"write.format.default": "parquet"})
    if by_day:
        report = run(lake, compact_data_files, name, min_input_files=2)
    else:
        report = run(lake, sort_data_files, name, columns=["z", "id"], min_overlap_depth=0.1)
    assert report.outcome == "done" and "by_iceberg" not in report.metrics, report
    assert pyiceberg_rows(lake, name) == rows
    (file,) = [file for file in listed_files(lake, name, 0) if file.record_count > 40]
    stored = pq.read_table(file.file_path.removeprefix("file:"))
    assert by_day or stored["z"].cast("int64").to_pylist() == sorted(
        stored["z"].cast("int64").to_pylist(), key=lambda n: n or 0
    )
    numbers = {4: stored["n"], 5: stored["z"], 7: pc.struct_field(stored["s"], "x"), 3: stored["t"]}
    for number, values in numbers.items():
        ends = pc.min_max(values.cast("int64")).as_py()
        assert [int.from_bytes(side[number], "little") for side in (file.lower_bounds, file.upper_bounds)] == [
            *ends.values()
        ]


@pytest.mark.soak
@pytest.mark.parametrize("version", (2, 3))
def test_random_tables_with_a_history_are_rewritten_as_by_iceberg(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    @settings(max_examples=20, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(STEPS, st.sampled_from(("", "d")), st.sampled_from((compact_data_files, sort_data_files)))
    def compare_any(steps: list[str], by: str, job: Any) -> None:
        compare(lake, monkeypatch, version, steps, by, job)

    compare_any()
