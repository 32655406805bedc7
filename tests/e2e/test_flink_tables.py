"""Tables written by Flink are converted, and three readers return the fold of the change events.

Flink's sink writes most equality deletes in practice, and shares no code with ours.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from local_services.flink import FlinkTables
from local_services.flink_shapes import NAMESPACE, Column, Shape, columns_at_the_end, tables
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import run
from tests.lakecdc.maintain.support import count
from tests.on_demand import on_demand

pytestmark = pytest.mark.services

# the other shapes differ in partitioning, kind of key or file format, with deletes that are read alike
SHAPES_IN_CI = (
    "changelog",
    "hidden",
    "key_types",
    "orc",
    "evolved_columns",
    "evolved_partitions",
    "two_keys",
    "upgraded",
)
TABLES = [name for name, (shape, _) in tables().items() if not shape.endless]
ENDLESS = [name for name, (shape, _) in tables().items() if shape.endless]


def in_ci(names: list[str]) -> list[Any]:
    """Return some shapes for CI, in alternating format versions; the others run on demand."""
    shapes = itertools.groupby(names, lambda name: name.rpartition("_v")[0])
    chosen = {cases[number % len(cases)] for number, cases in enumerate(list(group) for _, group in shapes)}
    return on_demand(names, in_ci={name for name in chosen if name.rpartition("_v")[0] in (*SHAPES_IN_CI, "stream")})


# neither pyiceberg nor DuckDB reads data files of these formats
SPARK_ONLY = ("avro", "orc")


@pytest.fixture(scope="module")
def flink(
    lake: Lake, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[FlinkTables]:
    """Start Flink on the tables of the chosen tests, in the catalog of the session."""
    chosen = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    names, folder = [name for name in (*TABLES, *ENDLESS) if name in chosen], tmp_path_factory.mktemp("flink")
    with FlinkTables(lake.folder / "catalog.db", lake.properties["warehouse"], folder, names) as writer:
        yield writer


def columns(name: str) -> tuple[Column, ...]:
    """Return the final columns of a table."""
    return columns_at_the_end(shape(name))


def shape(name: str) -> Shape:
    """Return the shape of a table."""
    return tables()[name][0]


@pytest.mark.parametrize("name", in_ci(TABLES))
def test_the_table_equals_the_fold_of_its_events(flink: FlinkTables, lake: Lake, name: str) -> None:
    expected, table = plain(flink.rows(name), name), f"{NAMESPACE}.{name}"
    assert spark_rows(lake, name) == expected
    assert count(lake, table, 2) > 0
    report = run(lake, table)
    assert (report.outcome, report.metrics["equality_delete_files_after"]) == ("done", 0)
    assert report.metrics["positions"] > 0
    assert_readers_see(lake, name, expected)


@pytest.mark.parametrize("name", in_ci(ENDLESS))
def test_conversions_while_flink_commits_every_second(flink: FlinkTables, lake: Lake, name: str) -> None:
    """Check that the writer never fails and nothing is lost; a conversion may end as a conflict."""
    table = f"{NAMESPACE}.{name}"
    flink.begin(name)
    flink.wait_for(f"events/{name}/0/00003.json", f"{name}.failed")
    reports = [run(lake, table) for _ in range(3)]
    flink.stop(name)
    expected = plain(flink.rows(name), name)
    assert {report.outcome for report in reports} <= {"done", "nothing", "conflict"}
    assert sum(commits(report) for report in reports) >= 2
    assert run(lake, table).outcome in ("done", "nothing")
    assert_readers_see(lake, name, expected)


def commits(report: TableReport) -> int:
    """Return the commits of a run."""
    return int(report.metrics["commits"]) if report.metrics else 0


def assert_readers_see(lake: Lake, name: str, expected: list[str]) -> None:
    """Check that every reader of the format returns the rows, and that no equality delete is left."""
    assert count(lake, f"{NAMESPACE}.{name}", 2) == 0
    assert spark_rows(lake, name) == expected
    if not name.startswith(SPARK_ONLY):
        assert pyiceberg_rows(lake, name) == expected
        assert duckdb_rows(lake, name) == expected


def spark_rows(lake: Lake, name: str) -> list[str]:
    """Return the rows read by Spark."""
    rows = lake.sql(f"SELECT * FROM lake.{NAMESPACE}.{name}").collect()
    return plain((row.asDict(recursive=True) for row in rows), name)


def duckdb_rows(lake: Lake, name: str) -> list[str]:
    """Return the rows read by DuckDB."""
    names = [column.name for column in columns(name)]
    rows = lake.duckdb_rows(f"{NAMESPACE}.{name}", ", ".join(f'"{column}"' for column in names))
    return plain((dict(zip(names, row, strict=True)) for row in rows), name)


def pyiceberg_rows(lake: Lake, name: str) -> list[str]:
    """Return the rows read by pyiceberg."""
    return plain(lake.pyiceberg().load_table(f"{NAMESPACE}.{name}").scan().to_arrow().to_pylist(), name)


def plain(rows: Iterable[dict[str, Any]], name: str) -> list[str]:
    """Return rows in one form for all readers and for the events: sorted lines of JSON."""
    types = {column.name: column.type for column in columns(name)}
    return sorted(
        json.dumps({column: value(row[column], kind) for column, kind in types.items()}, sort_keys=True) for row in rows
    )


def value(given: Any, kind: Any) -> Any:
    """Return a value as in the JSON of the events, whatever class the reader returns."""
    if given is None:
        return None
    if isinstance(kind, dict):
        return nested(given, kind)
    if kind in ("double", "float"):
        return "NaN" if math.isnan(float(given)) else repr(float(given))
    if isinstance(given, str | bool | int):
        return given
    if kind == "binary":
        return base64.b64encode(bytes(given)).decode()
    if kind.startswith("timestamp"):
        return given.strftime("%Y-%m-%dT%H:%M:%S.%f") + ("Z" if kind == "timestamptz" else "")
    return given.isoformat() if kind == "date" else str(given)


def nested(given: Any, kind: dict[str, Any]) -> Any:
    """Return a value of a nested type."""
    if kind["type"] == "struct":
        return {field["name"]: value(given[field["name"]], field["type"]) for field in kind["fields"]}
    if kind["type"] == "list":
        return [value(item, kind["element"]) for item in given]
    return {key: value(item, kind["value"]) for key, item in sorted(dict(given).items())}
