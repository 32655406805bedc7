"""Files written by tasks: Bloom filters by table properties, and older versions of Arrow."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecdc.writer import parquet
from lakecdc.writer.parquet import ArrowFile, FileColumn, FileLayout, refusal

COLUMNS = (
    FileColumn(1, "id", "long", True, "c0"),
    FileColumn(2, "name", "string", False, "c1"),
    FileColumn(3, "ok", "boolean", False, "c2"),
)
ENABLED = "write.parquet.bloom-filter-enabled.column."


def member(number: int, name: str, kind: str) -> dict[str, Any]:
    """Return a member of a struct."""
    return {"id": number, "name": name, "type": kind, "required": False}


def written(folder: Path, bloom: dict[str, tuple[float, int]], rows: int = 100) -> dict[str, Any]:
    """Write a file; return its column chunks by column."""
    file = ArrowFile(FileLayout(str(folder), {}, COLUMNS, bloom=bloom))
    numbers = list(range(rows))
    file.write(pa.table({"c0": numbers, "c1": [f"{n}" for n in numbers], "c2": [n % 2 == 0 for n in numbers]}))
    file.close()
    group = pq.read_metadata(str(file.location)).row_group(0)
    return {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}


def test_bloom_filters_are_written_for_configured_columns(tmp_path: Path) -> None:
    chunks = written(tmp_path, {"id": (0.01, 1024 * 1024), "ok": (0.01, 1024)})
    assert [name for name, chunk in chunks.items() if chunk.bloom_filter_offset] == ["id"]


def test_bloom_filters_respect_the_configured_size(tmp_path: Path) -> None:
    chunks = written(tmp_path, {"id": (0.01, 4096), "name": (0.1, 1024 * 1024)}, rows=200_000)
    assert 1024 <= chunks["id"].bloom_filter_length <= 2 * 4096
    assert 100_000 < chunks["name"].bloom_filter_length <= 1024 * 1024


def test_nans_are_counted_except_in_lists(tmp_path: Path) -> None:
    columns: list[dict[str, Any]] = [
        {"id": 1, "name": "f", "type": "float"},
        {"id": 2, "name": "s", "type": {"type": "struct", "fields": [member(3, "d", "double"), member(4, "n", "int")]}},
        {
            "id": 5,
            "name": "l",
            "type": {"type": "list", "element-id": 6, "element": "float", "element-required": False},
        },
        {"id": 7, "name": "whole", "type": "double"},
    ]
    file = ArrowFile(
        FileLayout(str(tmp_path), {}, tuple(FileColumn(**c, required=False, source=c["name"]) for c in columns))
    )
    nan = float("nan")
    structs = [{"d": nan, "n": 1}, None, {"d": None, "n": 1}]
    for _ in range(2):
        file.write(pa.table({"f": [nan, nan, -0.0], "s": structs, "l": [[nan]] * 3, "whole": [-0.0, 0.0, None]}))
    file.close()
    assert file.nans == {1: 4, 3: 2, 7: 0}
    group = pq.read_metadata(str(file.location)).row_group(0)
    # bounds are never NaN, and of both zeros the one that includes the other
    assert [str(getattr(group.column(0).statistics, end)) for end in ("min", "max")] == ["-0.0", "0.0"]
    assert not group.column(1).statistics.has_min_max
    assert [str(getattr(group.column(4).statistics, end)) for end in ("min", "max")] == ["-0.0", "0.0"]


def test_table_properties_select_the_columns_of_bloom_filters() -> None:
    properties = {
        f"{ENABLED}id": "true",
        f"{ENABLED}name": "false",
        f"{ENABLED}code": "TRUE",
        "write.parquet.bloom-filter-fpp.column.code": "0.05",
        "write.parquet.bloom-filter-max-bytes": "2048",
    }
    assert parquet.bloom_filters(properties) == {"id": (0.01, 2048), "code": (0.05, 2048)}


def test_an_arrow_without_bloom_filters_refuses_only_tables_that_need_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer_settings: list[dict[str, Any]] = []
    writer = pq.ParquetWriter

    def older(*arguments: Any, **settings: Any) -> Any:
        writer_settings.append(settings)
        return writer(*arguments, **settings)

    monkeypatch.setattr(pq, "ParquetWriter", older)
    assert "id" in written(tmp_path, {}) and "bloom_filter_options" not in writer_settings[0]
    monkeypatch.setattr(parquet, "_knows_bloom_filters", lambda: False)
    reason = refusal(SimpleNamespace(properties={f"{ENABLED}id": "true"}), ())  # type: ignore[arg-type]
    assert reason == f"the table has {ENABLED}…, and this pyarrow writes no Bloom filters"
