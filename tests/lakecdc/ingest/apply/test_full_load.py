"""Full loads written by tasks: the rows they write, and that they leave nothing behind when they fail or give up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.spec import parse_spec
from lakecdc.contract.target import Target
from lakecdc.iceberg import definition
from lakecdc.ingest import tables
from lakecdc.ingest.apply.events import append_events
from lakecdc.ingest.apply.modes import apply_rows
from lakecdc.ingest.apply.publish import Applied
from lakecdc.ingest.batch import Batch, CommitPlan
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.formats.text_columns import TextColumn, TypeRows
from lakecdc.ingest.sources.database import LoadMark, all_fitting, load_rows, plan_load
from lakecdc.ingest.sources.mysql.types import convert
from lakecdc.ingest.table_feed import open_feed
from lakecdc.ingest.table_run import TableRun
from lakecdc.metadata.positions import Position
from lakecdc.model.order import order_key
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Loads

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

TIME = datetime(2026, 1, 2, tzinfo=UTC)
COLUMNS = (Column("p0", "bigint", required=True), Column("name", "string"), Column("n", "decimal(9,2)"))
TYPED = TypeRows(tuple(TextColumn(c.name, "decimal", c.type) for c in COLUMNS), ("p0",), convert)
ROWS = 1000
AVRO = {"write.format.default": "avro"}
BLOOM = "write.parquet.bloom-filter-enabled.column.p0"
# coprime to the number of rows: every key comes once, and not in order
STEP = 77
_MANY = "Spark: the rows have more than 32 partitions"


@dataclass(frozen=True)
class Share:
    """Half of the rows for each of two tasks, in two batches.

    :param log: file that notes each reading.
    :param misfits: rows whose key is a multiple of this have a number that does not fit; 0 for none.
    :param odd: the error that a task raises between its batches.
    """

    log: str = os.devnull
    misfits: int = 0
    odd: str = ""

    def __call__(self, number: int) -> Iterator[pa.Table]:
        import pyarrow as pa

        with open(self.log, "a") as file:
            file.write(f"{number}")
        for part in range(2):
            if self.odd and part:
                raise RuntimeError(self.odd)
            keys = [place * STEP % ROWS for place in range(number, ROWS, 2)][part::2]
            names = [None if key % 3 == 0 else f"{key}" for key in keys]
            numbers = [f"{key}.005" if self.misfits and key % self.misfits == 0 else f"{key}" for key in keys]
            yield TYPED.typed([pa.array(keys, pa.int64()), pa.array(names), pa.array(numbers)])


def load(
    lake: Lake, name: str = "", *, share: Share = Share(), misfits: dict[int, str] | None = None, **target: Any
) -> tuple[str, Applied]:
    """Load a new table from two tasks, or from one that fails: a second one might outlive the job.

    :param name: of the table; default: a new one.
    :param misfits: receives the texts of the rows that do not fit, by key.
    """
    settings, order = Target(name or lake.new_name("load"), key=("p0",), **target), order_key(1, 5, 0, 0)

    def keep(unfit: DataFrame, rows: int) -> None:
        assert misfits is not None and rows == ROWS
        misfits.update({row["key"]["p0"]: str(row["texts"]) for row in unfit.collect()})

    rows = load_rows(plan_load(lake.spark, TYPED, LoadMark(order, TIME), share, share, 1 if share.odd else 2)).rows
    commit = CommitPlan(keep_misfits=keep)
    batch = Batch(settings, ("p0",), COLUMNS, rows, Position("test", "1", {}), full_load=True, commit=commit)
    table, _ = tables.prepare(lake.spark, "lake", None, batch)
    if settings.keyed:
        return settings.table, apply_rows(settings.mode, table, batch, batch.position, None)
    return settings.table, append_events(table, batch, None, None, None)[0]


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
        pytest.param({}, marks=pytest.mark.soak),
        {"mode": "merge", "partition_by": ["bucket(3, p0)"], "format_version": 3},
        {"mode": "merge", "partition_by": ["truncate(1, name)", "bucket(1, n)"], "properties": {BLOOM: "true"}},
    ],
    ids=["upsert", "merge", "values"],
)
def test_the_tasks_write_the_table(lake: Lake, target: dict[str, Any]) -> None:
    name, applied = load(lake, **target)
    assert (applied.staged.written_by, applied.rows) == ("tasks", ROWS)
    assert rows_of(lake, name) == expected()
    table = lake.pyiceberg().load_table(name)
    assert sorted(table.scan(row_filter="p0 >= 998").to_arrow()["p0"].to_pylist()) == [998, 999]
    files = lake.sql(f"SELECT readable_metrics.p0.* FROM lake.{name}.files").collect()
    # two tasks for each of three buckets, or for each first digit and null
    assert len(files) == applied.data_files == {1: 6, 2: 20}.get(len(target.get("partition_by", ())), 2)
    assert sum(file["value_count"] for file in files) == ROWS
    # a file in the wrong bucket would hide its keys
    for key in range(0, ROWS, 97):
        assert table.scan(row_filter=f"p0 == {key}").to_arrow()["p0"].to_pylist() == [key]
    assert lake.sql(f"SELECT count(*) FROM lake.{name} WHERE p0 = 97").first()[0] == 1


@pytest.mark.soak
def test_a_dropped_partition_field_of_an_older_table_stays_null(lake: Lake) -> None:
    name = lake.new_name("load")
    lake.sql(
        f"CREATE TABLE lake.{name} (p0 BIGINT NOT NULL, name STRING, n DECIMAL(9, 2), _lakecdc_order STRING, "
        "_lakecdc_source_time TIMESTAMP) USING iceberg PARTITIONED BY (name, bucket(2, p0)) "
        "TBLPROPERTIES ('format-version'='1')"
    )
    lake.sql(f"ALTER TABLE lake.{name} SET IDENTIFIER FIELDS p0")
    # version 1 keeps the field as always null
    lake.sql(f"ALTER TABLE lake.{name} DROP PARTITION FIELD name")
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('format-version'='2')")
    _, applied = load(lake, name)
    assert applied.staged.written_by == "tasks" and rows_of(lake, name) == expected()
    partitions = lake.sql(f"SELECT DISTINCT to_json(partition) FROM lake.{name}.files").collect()
    assert {row[0] for row in partitions} == {'{"p0_bucket":0}', '{"p0_bucket":1}'}


def test_files_end_at_the_target_size_and_are_sorted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name, applied = load(lake, properties={"write.target-file-size-bytes": "1"})
    assert applied.data_files == 2 and rows_of(lake, name) == expected()
    import pyarrow.parquet as pq

    for file in files_below(lake, name):
        keys = pq.read_table(file)["p0"].to_pylist()
        assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("target", "engine", "readings"),
    [
        ({}, "tasks", "01"),
        pytest.param({"mode": "append"}, "tasks", "01", marks=pytest.mark.soak),
        pytest.param({"mode": "merge", "partition_by": ["name"]}, _MANY, "010101", marks=pytest.mark.soak),
        ({"mode": "history"}, None, "0101"),
    ],
)
def test_unfit_rows_are_separated(
    lake: Lake, tmp_path: Path, target: dict[str, Any], engine: str | None, readings: str
) -> None:
    misfits, log = dict[int, str](), tmp_path / "readings"
    name, applied = load(lake, share=Share(f"{log}", misfits=100), misfits=misfits, **target)
    assert (applied.staged.written_by, applied.rows) == (engine, ROWS - 10)
    assert misfits == {key: f"{{'n': '{key}.005'}}" for key in range(0, ROWS, 100)}
    assert rows_of(lake, name) == [row for row in expected() if row[0] not in misfits]
    assert "".join(sorted(log.read_text())) == "".join(sorted(readings)), "tasks read their shares once"


def test_misfits_stop_a_load_without_a_quarantine(lake: Lake) -> None:
    shares = {misfits: Share(misfits=misfits) for misfits in (0, 100)}
    mark = LoadMark("", TIME)
    planned = {misfits: plan_load(lake.spark, TYPED, mark, share, share, 2) for misfits, share in shares.items()}
    assert all_fitting(planned[0].judged).count() == ROWS
    with pytest.raises(PySparkException, match="do not fit their columns: n"):
        all_fitting(planned[100].judged).count()


def test_a_load_without_fitting_rows_creates_an_empty_table(lake: Lake) -> None:
    misfits = dict[int, str]()
    name, applied = load(lake, share=Share(misfits=1), misfits=misfits)
    assert (applied.staged.written_by, applied.data_files, len(misfits)) == ("tasks", 0, ROWS)
    assert rows_of(lake, name) == []


def test_failed_tasks_leave_no_files(lake: Lake) -> None:
    name = lake.new_name("load")
    with pytest.raises(PySparkException, match="failed by the test"):
        load(lake, name, share=Share(odd="failed by the test"), partition_by=["bucket(2, p0)"])
    assert lake.table(name).head() is None and files_below(lake, name) == set()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        pytest.param(
            {"partition_by": ["bucket(64, p0)"]}, "Spark: the table has 64 partitions", marks=pytest.mark.soak
        ),
        ({"mode": "merge", "partition_by": ["name"]}, _MANY),
        pytest.param({"properties": AVRO}, "Spark: write.format.default is avro", marks=pytest.mark.soak),
    ],
)
def test_unsupported_tables_are_left_to_spark(lake: Lake, target: dict[str, Any], why: str) -> None:
    name, applied = load(lake, **target)
    assert applied.staged.written_by == why and lake.sql(f"SELECT * FROM lake.{name}").count() == ROWS
    there = {row[0].rpartition("/")[2] for row in lake.sql(f"SELECT file_path FROM lake.{name}.files").collect()}
    assert {Path(file).name for file in files_below(lake, name)} == there, "files written by tasks were left"
    assert definition.live_specs(lake.table(name))


@pytest.mark.parametrize("properties", [{}, pytest.param(AVRO, marks=pytest.mark.soak)], ids=["tasks", "iceberg"])
def test_a_key_without_a_value_is_named(lake: Lake, properties: dict[str, str]) -> None:
    loads = Loads(lake)
    loaded = loads.batch(1, {1: "a"})
    assert loaded.rows is not None
    row = F.struct(F.lit(None).cast("bigint").alias("id"), F.col("row.v").alias("v"))
    target = replace(loads.target, history_table=None, properties=properties)
    batch = replace(loaded, target=target, rows=Rows(loaded.rows.frame.withColumn("row", row)))
    source = {"type": "files", "path": "unused", "format": "debezium-json"}
    spec = parse_spec(lake.spec("ingest", source=source, target={"table": target.table, "key": ["id"]}))
    run = TableRun(lake.spark, open_feed(lake.spark, spec, target, None))
    with pytest.raises(InputError, match="The key column 'id' has no value in a row of the source"):
        run.apply(batch)
    assert lake.table(target.table).head() is None
