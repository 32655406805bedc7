"""Behaviour of tested readers with types and defaults of format version 3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from lakecdc.contract.runtime import ICEBERG_VERSION
from lakecdc.metadata.readers import READERS, Reader
from local_services.reader_tools import CLICKHOUSE_PACKAGE, TRINO_VERSION
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.java_tables import JavaTable
from tests.readers import Read, all_readers, readers_at_hand

TRIED: dict[str, Reader] = {reader.short: reader for reader in READERS if reader.tried}
MOMENT = "2024-02-29T23:59:59.123456789"
AS_TEXT = {
    "spark": "CAST(x AS string)",
    "duckdb": "CAST(x AS varchar)",
    "clickhouse": "toString(x)",
    "trino": "CAST(x AS varchar)",
}


def timestamps_ns(lake: Lake) -> tuple[str, str]:
    table = JavaTable(lake, {"x": "timestamp_ns"}, 3)
    table.append({"x": MOMENT})
    return table.name, MOMENT


def variant(lake: Lake) -> tuple[str, str]:
    name = lake.new_name("variant")
    lake.sql(f"CREATE TABLE lake.{name} (x variant) USING iceberg TBLPROPERTIES ('format-version'='3')")
    lake.sql(f"INSERT INTO lake.{name} SELECT parse_json('{{\"a\": 17}}')")
    return name, "17"


def default_values(lake: Lake) -> tuple[str, str]:
    table = JavaTable(lake, {"id": "int"}, 3)
    table.append({"id": 1})
    table.add_column_with_default("x", "string", "17")
    return table.name, "17"


MAKE = (timestamps_ns, variant, default_values)


def text(read: Read, short: str, name: str) -> str:
    """Return what a reader reads, or why it refuses the table."""
    try:
        return str(read(name, AS_TEXT.get(short, "*"))[0][-1]).replace(" ", "T")
    except Exception as error:
        return f"refused: {error}"


def check(lake: Lake, make: Callable[[Lake], tuple[str, str]], readers: Mapping[str, Read]) -> None:
    name, written = make(lake)
    texts = {short: text(read, short, name) for short, read in readers.items()}
    readable = {short: written in each and not each.startswith("refused: ") for short, each in texts.items()}
    said = {short: getattr(TRIED[short], make.__name__) for short in readers}
    assert readable == {short: readable[short] if fact is None else fact for short, fact in said.items()}, texts


@pytest.mark.parametrize("make", MAKE)
def test_readers_behave_as_documented(lake: Lake, make: Callable[[Lake], tuple[str, str]]) -> None:
    check(lake, make, readers_at_hand(lake))


@pytest.mark.services
@pytest.mark.soak
def test_servers_behave_as_documented(lake: Lake, tmp_path: Path) -> None:
    with all_readers(lake, tmp_path) as readers:
        assert readers.keys() == TRIED.keys()
        for make in MAKE:
            check(lake, make, readers)


def test_documented_versions_equal_the_tested_ones() -> None:
    run = {"duckdb": version("duckdb"), "pyiceberg": version("pyiceberg"), "spark": ICEBERG_VERSION}
    servers = {"trino": TRINO_VERSION, "clickhouse": CLICKHOUSE_PACKAGE.replace("==", " ")}
    assert {short: reader.tried for short, reader in TRIED.items()} == run | servers
