"""What the readers at hand do with types and defaults of format version 3: the facts that say they were executed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakecdc.metadata.readers import READERS
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.java_tables import JavaTable
from tests.readers import duckdb_rows

AT_HAND = {reader.short: reader for reader in READERS if reader.short in ("spark", "duckdb", "pyiceberg")}
MOMENT = "2024-02-29T23:59:59.123456789"


def timestamps_ns(lake: Lake) -> tuple[str, str]:
    table = JavaTable(lake, {"id": "int", "x": "timestamp_ns"}, 3)
    table.append({"id": 1, "x": MOMENT})
    return table.name, MOMENT


def variant(lake: Lake) -> tuple[str, str]:
    name = lake.new_name("variant")
    lake.sql(f"CREATE TABLE lake.{name} (id int, x variant) USING iceberg TBLPROPERTIES ('format-version'='3')")
    lake.sql(f"INSERT INTO lake.{name} SELECT 1, parse_json('{{\"a\": 17}}')")
    return name, "17"


def default_values(lake: Lake) -> tuple[str, str]:
    table = JavaTable(lake, {"id": "int"}, 3)
    table.append({"id": 1})
    table.add_column_with_default("x", "string", "17")
    return table.name, "17"


def by_spark(lake: Lake, name: str) -> str:
    ((value,),) = lake.sql(f"SELECT CAST(x AS string) FROM lake.{name}").collect()
    return str(value)


def by_duckdb(lake: Lake, name: str) -> str:
    location = lake.table(name).java.operations().current().metadataFileLocation()
    ((value,),) = duckdb_rows(str(location), "CAST(x AS varchar)")
    return str(value)


def by_pyiceberg(lake: Lake, name: str) -> str:
    rows = lake.pyiceberg().load_table(name).scan().to_arrow().to_pylist()
    return str(rows[0]["x"])


def value(read: Callable[[Lake, str], str], lake: Lake, name: str) -> str | None:
    """What a reader reads, None if it refuses the table."""
    try:
        return read(lake, name)
    except Exception:
        return None


@pytest.mark.parametrize("make", [timestamps_ns, variant, default_values])
def test_what_is_said_to_be_executed_is_so(lake: Lake, make: Callable[[Lake], tuple[str, str]]) -> None:
    name, written = make(lake)
    reads: dict[str, Any] = {"spark": by_spark, "duckdb": by_duckdb, "pyiceberg": by_pyiceberg}
    read = {short: value(reads[short], lake, name) for short in AT_HAND}
    found = {short: text is not None and written in text.replace(" ", "T") for short, text in read.items()}
    assert found == {short: getattr(reader, make.__name__) for short, reader in AT_HAND.items()}
