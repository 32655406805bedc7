"""Keys whose deletes Iceberg's planning misses, and types that Spark does not support."""

from __future__ import annotations

import pytest

from lakecdc.contract.errors import UnsupportedError
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.java_tables import JavaTable
from tests.lakecdc.maintain.delete_files.support import pyiceberg_rows, run, spark_rows
from tests.on_demand import on_demand


@pytest.mark.parametrize(
    ("kind", "given", "version"),
    on_demand(
        [
            ("time", "23:59:59.999999", 2),
            ("timestamp_ns", "2024-02-29T23:59:59.999999999", 3),
            ("timestamptz_ns", "2024-02-29T23:59:59.999999999+00:00", 3),
        ],
        in_ci=[("time", "23:59:59.999999", 2)],
    ),
)
def test_keys_that_spark_cannot_read_are_refused_with_the_reason(
    lake: Lake, kind: str, given: str, version: int
) -> None:
    table = JavaTable(lake, {"id": "int", "k": kind}, version)
    table.append({"id": 1, "k": given}, {"id": 2, "k": None})
    table.delete({"k": given})
    before = lake.table(table.name).head()
    with pytest.raises(UnsupportedError, match=kind):
        run(lake, table.name)
    assert lake.table(table.name).head() == before
    assert list(dict(lake.table(table.name).java.refs())) == ["main"]


def test_uuid_keys_are_converted_although_iceberg_misorders_them(lake: Lake) -> None:
    """Iceberg compares uuids as signed numbers but bounds as unsigned: its planning skips deletes that apply.

    Its readers return deleted rows (apache/iceberg #14216); after the conversion no reader does.
    """
    table = JavaTable(lake, {"id": "int", "u": "uuid"}, 2)
    low, high = "00000000-0000-4000-8000-00000000000a", "ffffffff-ffff-4fff-bfff-ffffffffffff"
    table.append({"id": 0, "u": low}, {"id": 1, "u": high}, {"id": 2, "u": None})
    table.delete({"u": low}, {"u": high})
    assert len(spark_rows(lake, table.name)) == 3, "Iceberg now plans uuids correctly"
    report = run(lake, table.name)
    assert (report.outcome, report.metrics["positions"]) == ("done", 2)
    assert (
        [row[0] for row in spark_rows(lake, table.name)] == [row[0] for row in pyiceberg_rows(lake, table.name)] == [2]
    )


@pytest.mark.soak
def test_dropped_uuid_keys_are_converted(lake: Lake) -> None:
    table = JavaTable(lake, {"id": "int", "u": "uuid"}, 2)
    low, high = "00000000-0000-4000-8000-00000000000a", "ffffffff-ffff-4fff-bfff-ffffffffffff"
    table.append({"id": 0, "u": low}, {"id": 1, "u": high}, {"id": 2, "u": None})
    table.delete({"u": low}, {"u": high})
    lake.sql(f"ALTER TABLE lake.{table.name} DROP COLUMN u")
    assert run(lake, table.name).metrics["positions"] == 2
    assert spark_rows(lake, table.name) == [(2,)]
