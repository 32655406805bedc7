"""Tasks write the same event files as Spark and Iceberg."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from lakecdc.ingest.apply.packed import EventsTask, key_json
from lakecdc.ingest.engine import packing
from lakecdc.writer import files
from lakecdc.writer.parquet import ArrowFile, FileColumn, FileLayout
from lakecdc.writer.partitions import PartitionColumn
from lakecdc.writer.transforms import Transform
from tests.conftest import Lake


def test_old_keys_equal_the_json_of_spark(lake: Lake) -> None:
    texts = ["", 'a"b', "\\u001f", "\\\x1f", "/", "é東\u2028\x7f", "".join(map(chr, range(1, 48)))]
    keys = [(n, text) for n, text in enumerate(texts)]
    frame = lake.spark.createDataFrame(keys, "id bigint, `Part, u00b` string")
    rows = frame.select(F.to_json(F.struct("*")), "*").collect()
    assert [key_json(dict(zip(frame.columns, row[1:], strict=True))) for row in rows] == [row[0] for row in rows]


def test_the_number_of_open_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_open, most = set[ArrowFile](), 0

    class Counted(ArrowFile):
        def write(self, table: pa.Table) -> None:
            nonlocal most
            super().write(table)
            is_open.add(self)
            most = max(most, len(is_open))

        def close(self) -> int:
            is_open.remove(self)
            return super().close()

    monkeypatch.setattr(files, "ArrowFile", Counted)
    keys = list(range(100))
    events = {
        "op": pa.array("c" for _ in keys),
        "k0": pa.array(keys, pa.int64()),
        "c0": pa.array(keys, pa.int64()),
        "open": pa.nulls(len(keys), pa.list_(pa.string())),
        "order": pa.array(f"{key:03d}" for key in keys),
        "time_us": pa.nulls(len(keys), pa.int64()),
    }
    cells = [packing.binary(cell) for cell in packing.cells(pa.table(events))]
    by = (PartitionColumn("c0", Transform("truncate", "id", 2)),)
    columns = (FileColumn(1, "id", "long", True, "c0"), FileColumn(2, "at", "string", False, "order"))
    task = EventsTask(FileLayout(str(tmp_path), {}, columns, by), {"id": "c0"}, ("id",))
    batches = task(pa.RecordBatch.from_arrays([cell], ["packed"]) for cell in cells)
    unpacked = [row for batch in batches for row in batch.to_pylist()]
    assert len(unpacked) == 50 and most == files.MOST_OPEN and not is_open
    for row in unpacked:
        (low,) = json.loads(row["partition"])
        assert pq.read_table(row["location"])["id"].to_pylist() == [int(low), int(low) + 1]
