"""Columns widen with their source, or stop their table if they cannot, with any engine and batches."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoded import Known
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from tests.conftest import Lake
from tests.lakecdc.ingest.by_spark import ENGINES, both_engines
from tests.lakecdc.ingest.formats.decoding import decode_lines, rejections, state
from tests.on_demand import on_demand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Types = dict[str, str]
TARGET = Target("shop.t", key=("id",))
NARROW = {"id": "int", "f": "float", "d": "decimal(10,2)"}
WIDE = {"id": "bigint", "f": "double", "d": "decimal(12,2)"}
_CONNECT = {"int": "int32", "bigint": "int64", "float": "float", "double": "double", "text": "string"}


def canal(number: int, types: Types, row: dict[str, Any], table: str = "t", *, delete: bool = False) -> str:
    place = {"database": "shop", "table": table, "es": 5000, "ts": 6000, "id": number, "isDdl": False, "old": None}
    data = {name: str(value) for name, value in row.items()}
    return json.dumps({**place, "type": "DELETE" if delete else "INSERT", "mysqlType": types, "data": [data]})


def debezium(number: int, types: Types, row: dict[str, Any], table: str = "t", *, delete: bool = False) -> str:
    """Return an event with decimals as numbers, as Connect's ``decimal.format`` NUMERIC writes them."""
    source = {"connector": "postgresql", "schema": "shop", "table": table, "lsn": number, "ts_ms": 1_700_000_000_000}
    fields: list[dict[str, Any]] = []
    for name, kind in types.items():
        if kind.startswith("decimal"):
            precision, scale = kind[8:-1].split(",")
            parameters = {"scale": scale, "connect.decimal.precision": precision}
            decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}
            fields.append({"field": name, **decimal})
        else:
            fields.append({"field": name, "type": _CONNECT[kind]})
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    images = {"op": "d", "before": row, "after": None} if delete else {"op": "c", "before": None, "after": row}
    payload = {**images, "source": source}
    return json.dumps({"schema": schema, "payload": payload})


MAKE = {"canal-json": canal, "debezium-json": debezium}
FED, IN_CI = [*product(MAKE, ENGINES)], [("debezium-json", "tasks")]
NEW = [*product(MAKE, ENGINES, (False, True))]
NEW_IN_CI = [("canal-json", "tasks", False)]


class Fed:
    """A table fed from files of events, one run per file."""

    def __init__(self, lake: Lake, folder: Path, name: str) -> None:
        self.lake, self.folder, self.make = lake, folder, MAKE[name]
        self.source = {"type": "files", "path": f"{folder}/*.jsonl", "format": name}
        self.target: dict[str, Any] = {"table": lake.new_name("typed"), "key": ["id"], "source_table": "t"}
        self.quarantine, self.files = lake.new_name("quarantine"), 0

    def take(self, *events: tuple[Types, dict[str, Any]], deleted: int | None = None) -> TableReport:
        """Feed a batch.

        :param deleted: place of the event that is a delete.
        """
        self.files += 1
        lines = [self.make(100 * self.files + i, *e, delete=i == deleted) + "\n" for i, e in enumerate(events)]
        (self.folder / f"{self.files}.jsonl").write_text("".join(lines))
        return self.run()

    def run(self) -> TableReport:
        options = {"max_quarantined_fraction": 1.0, "quarantine_table": self.quarantine}
        spec = self.lake.spec("ingest", source=self.source, target=self.target, options=options)
        report = run(parse_spec(spec), ingest)
        assert not report.error, report.error
        return report.tables[0]

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self.lake.duckdb_rows(self.target["table"], "id, f, d"))


@pytest.mark.parametrize(("name", "engine"), on_demand(FED, in_ci=IN_CI), indirect=["engine"])
def test_columns_widen_with_their_source(lake: Lake, tmp_path: Path, name: str, engine: str) -> None:
    fed = Fed(lake, tmp_path, name)
    first = {"id": 1, "f": 1.5, "d": 12.25}
    assert fed.take((NARROW, first), (NARROW, first | {"id": 7}), deleted=1).outcome == "done"
    large = {"id": 2**40, "f": 9.00000000009, "d": 1234567890.25}
    # an event from before the change arrives among later ones
    report = fed.take((WIDE, large), (NARROW, {"id": 1, "f": 2.5, "d": 12.5}))
    assert report.outcome == "done" and not report.metrics.get("quarantined"), report.reason
    assert sorted(report.metrics["schema_changes"]) == [
        "widened d from decimal(10,2) to decimal(12,2)",
        "widened f from float to double",
        "widened id from int to bigint",
    ]
    expected = [(1, 2.5, Decimal("12.50")), (2**40, 9.00000000009, Decimal("1234567890.25"))]
    assert fed.rows() == expected
    # keys match under their new type, narrower events change no type, and deletes are remembered
    report = fed.take((NARROW, {"id": 1, "f": 3.5, "d": 0}), (WIDE, large), deleted=1)
    assert report.outcome == "done" and "schema_changes" not in report.metrics, report.reason
    assert fed.rows() == [(1, 3.5, Decimal("0.00"))]
    assert sorted(lake.duckdb_rows(f"{fed.target['table']}_lakecdc_deletes", "id")) == [(7,), (2**40,)]


@pytest.mark.parametrize(("name", "engine"), on_demand(FED, in_ci=IN_CI), indirect=["engine"])
def test_types_that_iceberg_cannot_widen_stop_the_table(lake: Lake, tmp_path: Path, name: str, engine: str) -> None:
    fed = Fed(lake, tmp_path, name)
    assert fed.take((NARROW, {"id": 1, "f": 1.5, "d": 12.25})).outcome == "done"
    before = lake.table(fed.target["table"]).head()
    other = NARROW | {"d": "decimal(10,4)"}
    report = fed.take((NARROW, {"id": 1, "f": 2.5, "d": 12.5}), (other, {"id": 2, "f": 1, "d": 0.0625}))
    assert (report.outcome, report.failure_class) == ("failed", "bad input")
    assert "Cannot change column 'd' from decimal(10,2) to decimal(10,4)" in str(report.reason)
    assert lake.table(fed.target["table"]).head() == before
    # the remedy
    fed.target["columns"] = {"d": "decimal(10,2)"}
    report = fed.run()
    assert (report.outcome, report.metrics["quarantined"]) == ("done", 1), report.reason
    assert fed.rows() == [(1, 2.5, Decimal("12.50"))]


@pytest.mark.parametrize(("name", "engine", "shards"), on_demand(NEW, in_ci=NEW_IN_CI))
def test_a_new_table_gets_the_widest_types_of_its_first_batch(
    spark: SparkSession, name: str, engine: str, shards: bool
) -> None:
    row = {"id": 1, "f": 1.5, "d": 12.25}
    tables, settings = ("t", "t"), {}
    if shards:
        tables, settings = ("t1", "t2"), {"source_tables": ("t[12]",)}
    target = Target("shop.t", key=("id",), **settings)  # type: ignore[arg-type]
    for pair in ((NARROW, WIDE), (WIDE, NARROW)):
        lines = [MAKE[name](i, types, {**row, "id": i}, tables[i]) for i, types in enumerate(pair)]
        decoded = decode_lines(spark, name, lines, target, Known({}), engine=engine)
        assert {c.name: c.type for c in decoded.columns} == WIDE
        assert state(decoded, ("id", "d")) == [(0, Decimal("12.25")), (1, Decimal("12.25"))]
        spark.catalog.clearCache()


@both_engines
@pytest.mark.parametrize("change", on_demand(["int text", "bigint double", "text int"], in_ci=["bigint double"]))
def test_other_type_changes_become_text_or_are_refused(spark: SparkSession, engine: str, change: str) -> None:
    old, new = change.split()
    lines = [canal(1, {"id": "int", "v": new}, {"id": 1, "v": 5})]
    known = Known({"id": "int", "v": "string" if old == "text" else old})
    if old == "text":
        assert state(decode_lines(spark, "canal-json", lines, TARGET, known, engine=engine), ("v",)) == [("5",)]
    else:
        with pytest.raises(InputError, match="Cannot change column 'v' from"):
            decode_lines(spark, "canal-json", lines, TARGET, known, engine=engine)
    spark.catalog.clearCache()


@pytest.mark.parametrize(("engine", "is_new"), on_demand(product(ENGINES, (True, False)), in_ci=[("tasks", True)]))
def test_a_damaged_type_rejects_only_its_message(spark: SparkSession, engine: str, is_new: bool) -> None:
    types = {"id": "int(11)", "v": "decimal(10,2)"}
    damaged: list[Types] = [types | {"id": "ilt(11)"}, types | {"v": "decimal(1,22)"}, {"id": "int(11)", "w": "int"}]
    lines = [
        canal(i, types_of_message, {"id": i, "v": "1.50"})
        for i, types_of_message in enumerate([*damaged, types, types])
    ]
    known = Known({} if is_new else {"id": "int", "v": "decimal(10,2)"})
    decoded = decode_lines(spark, "canal-json", lines, TARGET, known, engine=engine)
    assert {c.name: c.type for c in decoded.columns} == {"id": "int", "v": "decimal(10,2)"}
    assert state(decoded, ("id", "v")) == [(3, Decimal("1.50")), (4, Decimal("1.50"))]
    assert rejections(decoded) == [
        ("unknown-type", "mysqlType lacks a column of the row"),
        ("unknown-type", "the source does not have the type that the message gives for id"),
        ("unknown-type", "the source does not have the type that the message gives for v"),
    ]
    # the user's choice for a column comes first
    fixed = Target("shop.t", key=("id",), columns={"id": "int", "v": "decimal(10,2)"})
    decoded = decode_lines(spark, "canal-json", lines, fixed, known)
    assert [i for (i,) in state(decoded, ("id",))] == [0, 1, 3, 4] and decoded.rejections == 1
    spark.catalog.clearCache()
