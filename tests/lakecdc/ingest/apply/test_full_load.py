"""Full loads that tasks write by themselves: what they leave, and that nothing is left when they fail or give up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lakecdc.contract.target import Target
from lakecdc.iceberg import definition
from lakecdc.ingest import tables
from lakecdc.ingest.apply.modes import apply_rows
from lakecdc.ingest.apply.publish import Applied
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Column, LoadRows, OddValueError
from lakecdc.ingest.sources.database import LoadMark, full_load_frame
from lakecdc.metadata.positions import Position
from lakecdc.model.order import order_key
from tests.conftest import Lake

if TYPE_CHECKING:
    import pyarrow as pa

TIME = datetime(2026, 1, 2, tzinfo=UTC)
COLUMNS = (Column("p0", "bigint", required=True), Column("name", "string"), Column("n", "decimal(9,2)"))
ROWS = 1000
BLOOM = "write.parquet.bloom-filter-enabled.column.p0"
# coprime to the number of rows, so that every key comes once and none in order
STEP = 77


def load(
    lake: Lake, name: str = "", *, odd: Callable[[], Exception] | None = None, **target: Any
) -> tuple[str, Applied]:
    """Load a new table from two tasks of two batches each.

    :param name: of the table; default: a new one.
    :param odd: makes what the second task raises between its batches.
    """
    settings = Target(name or lake.new_name("load"), key=("p0",), **target)

    def read(number: int) -> Iterator[pa.Table]:
        import pyarrow as pa

        for part in range(2):
            if odd and number and part:
                raise odd()
            keys = [place * STEP % ROWS for place in range(number, ROWS, 2)][part::2]
            texts = [None if key % 3 == 0 else f"{key}" for key in keys]
            numbers = pa.array(keys, pa.int64())
            yield pa.table([numbers, pa.array(texts), numbers.cast(pa.decimal128(21, 2)).cast(pa.decimal128(9, 2))],
                           names=["c0", "c1", "c2"])  # fmt: skip

    ids = lake.spark.range(ROWS).select(F.col("id").alias("p0"))
    row = F.expr("struct(p0, if(p0 % 3 != 0, string(p0), null) AS name, CAST(p0 AS decimal(9,2)) AS n)")
    order = order_key(1, 5, 0, 0)
    changes = full_load_frame(ids, ("p0",), row, LoadMark(order, TIME))
    rows = LoadRows(changes, read=read, tasks=2, order=order, time=TIME)
    batch = Batch(settings, ("p0",), COLUMNS, rows, Position("test", "1", {}), full_load=True)
    table, _ = tables.prepare(lake.spark, "lake", None, batch)
    return settings.table, apply_rows(settings.mode, table, batch, batch.position, None)


def expected() -> list[tuple[Any, ...]]:
    return [(key, None if key % 3 == 0 else f"{key}", key, order_key(1, 5, 0, 0), TIME) for key in range(ROWS)]


def rows_of(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    return sorted(lake.duckdb_rows(name, "p0, name, n, _lakecdc_order, _lakecdc_source_time"))


def files_below(lake: Lake, name: str) -> set[str]:
    data = Path(lake.table(name).location.removeprefix("file:")) / "data"
    return {str(file) for file in data.rglob("*") if file.is_file() and not file.name.startswith(".")}


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"mode": "merge", "partition_by": ["bucket(3, p0)"], "format_version": 3},
        {"mode": "merge", "partition_by": ["truncate(1, name)", "bucket(1, n)"], "properties": {BLOOM: "true"}},
    ],
    ids=["upsert", "merge", "values"],
)
def test_the_tasks_write_the_table(lake: Lake, target: dict[str, Any]) -> None:
    name, applied = load(lake, **target)
    assert (applied.engine, applied.rows) == ("native", ROWS)
    assert rows_of(lake, name) == expected()
    scanned = lake.pyiceberg().load_table(name).scan(row_filter="p0 >= 998").to_arrow()
    assert sorted(scanned["p0"].to_pylist()) == [998, 999]
    files = lake.sql(f"SELECT readable_metrics.p0.* FROM lake.{name}.files").collect()
    # two tasks for each of three buckets, or for each first digit and null
    assert len(files) == applied.data_files == {1: 6, 2: 20}.get(len(target.get("partition_by", ())), 2)
    assert sum(file["value_count"] for file in files) == ROWS
    # a partition whose bucket is not that of its keys would hide them
    for key in range(0, ROWS, 97):
        assert lake.sql(f"SELECT count(*) FROM lake.{name} WHERE p0 = {key}").first()[0] == 1


def test_a_dropped_partition_field_of_an_older_table_stays_null(lake: Lake) -> None:
    name = lake.new_name("load")
    lake.sql(
        f"CREATE TABLE lake.{name} (p0 BIGINT NOT NULL, name STRING, n DECIMAL(9, 2), _lakecdc_order STRING, "
        "_lakecdc_source_time TIMESTAMP) USING iceberg PARTITIONED BY (name, bucket(2, p0)) "
        "TBLPROPERTIES ('format-version'='1')"
    )
    lake.sql(f"ALTER TABLE lake.{name} SET IDENTIFIER FIELDS p0")
    # version 1 keeps the field, as one that is always null
    lake.sql(f"ALTER TABLE lake.{name} DROP PARTITION FIELD name")
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('format-version'='2')")
    _, applied = load(lake, name)
    assert applied.engine == "native" and rows_of(lake, name) == expected()
    told = lake.sql(f"SELECT DISTINCT to_json(partition) FROM lake.{name}.files").collect()
    assert {row[0] for row in told} == {'{"p0_bucket":0}', '{"p0_bucket":1}'}


def test_files_end_at_the_target_size_and_are_sorted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name, applied = load(lake, properties={"write.target-file-size-bytes": "1"})
    assert applied.data_files == 2 and rows_of(lake, name) == expected()
    import pyarrow.parquet as pq

    for file in files_below(lake, name):
        keys = pq.read_table(file)["p0"].to_pylist()
        assert keys == sorted(keys)


def test_a_value_that_arrow_refuses_is_left_to_spark(lake: Lake) -> None:
    name, applied = load(lake, odd=lambda: OddValueError("it is odd"))
    assert applied.engine == "jvm: it is odd" and rows_of(lake, name) == expected()
    there = {row[0].removeprefix("file:") for row in lake.sql(f"SELECT file_path FROM lake.{name}.files").collect()}
    assert {Path(file).name for file in files_below(lake, name)} == {Path(file).name for file in there}


def test_tasks_that_fail_leave_nothing(lake: Lake) -> None:
    name = lake.new_name("load")
    with pytest.raises(PySparkException, match="told to"):
        load(lake, name, odd=lambda: RuntimeError("told to"), partition_by=["bucket(2, p0)"])
    assert lake.table(name).head() is None and files_below(lake, name) == set()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ({"partition_by": ["bucket(64, p0)"]}, "the table has 64 partitions"),
        ({"mode": "merge", "partition_by": ["name"]}, "the rows are of more than 32 partitions"),
        ({"properties": {"write.format.default": "avro"}}, "write.format.default is avro"),
    ],
)
def test_what_tasks_do_not_know_is_left_to_spark(lake: Lake, target: dict[str, Any], why: str) -> None:
    name, applied = load(lake, **target)
    assert applied.engine == f"jvm: {why}" and lake.sql(f"SELECT * FROM lake.{name}").count() == ROWS
    assert definition.live_specs(lake.table(name))
