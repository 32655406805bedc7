"""Container files of Debezium events in Avro."""

from __future__ import annotations

import io
import json
import random
import zlib
from datetime import date
from pathlib import Path
from typing import Any

import fastavro._write
import pyarrow as pa
import pytest

from lakecdc.ingest.engine.pieces import PLACE_BITS, UnusableFileError
from lakecdc.ingest.sources.containers import read_containers
from tests.lakecdc.ingest.formats.avro import Document, envelope_schema, optional
from tests.lakecdc.ingest.formats.fuzz import mutated_bytes
from tests.lakecdc.ingest.sources.files.conftest import Fed

COLUMNS = [
    {"name": "id", "type": "int"},
    {"name": "n", **optional("long")},
    {"name": "born", **optional({"type": "int", "connect.name": "io.debezium.time.Date"})},
]


def write(file: Path, columns: list[Document], *events: tuple[str, int, dict[str, Any]]) -> None:
    records = []
    for op, lsn, row in events:
        source = {"connector": "postgresql", "ts_ms": lsn, "db": "d", "schema": "s", "table": "rows", "lsn": lsn}
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        records.append({"op": op, **images, "source": {**source, "snapshot": "false"}, "ts_ms": lsn})
    with file.open("wb") as out:
        fastavro.writer(out, fastavro.parse_schema(envelope_schema(columns)), records, codec="deflate")


def test_files_of_several_schemas_are_read_and_misfits_quarantined(fed: Fed) -> None:
    fed.source = {"format": "debezium-avro"}
    fed.target = {"key": ["id"], "source_table": "rows", "columns": {"n": "int"}}
    large = 2**40
    write(
        fed.folder / "a b.avro",
        COLUMNS,
        ("c", 1, {"id": 1, "n": 1, "born": 0}),
        ("c", 2, {"id": 2, "n": 2, "born": 1}),
        ("c", 3, {"id": 3, "n": large, "born": 2}),
    )
    more = [*COLUMNS, {"name": "note", **optional("string")}]
    write(fed.folder / "c.avro", more, ("u", 4, {"id": 1, "n": 5, "born": 0, "note": "new"}), ("d", 5, {"id": 2}))
    report = fed.run()
    assert report.metrics["files_read"] == 2 and report.metrics["quarantined"] == 1
    assert fed.rows("id, n, born, note") == [(1, 5, date(1970, 1, 1), "new")]
    ((rule, raw),) = fed.quarantined()
    assert rule == "type" and raw.startswith('{"schema":') and f'"n":{large}' in raw
    # the quarantined record knows its encodings, although its file is not read again
    fed.lake.sql(f"ALTER TABLE lake.{fed.name} ALTER COLUMN n TYPE bigint")
    fed.target["columns"] = {"n": "bigint"}
    fed.run("replay_quarantine")
    assert fed.rows("id, n, born")[-1] == (3, large, date(1970, 1, 3)) and fed.quarantined() == []
    (fed.folder / "d.avro").write_bytes(b"Obj\1 and nothing that follows")
    report = fed.run(outcome="failed")
    assert "d.avro is not an Avro container" in str(report.reason)
    # a file with damaged records; its neighbours are read once it is removed
    for number, name in ((4, "d"), (5, "e")):
        write(fed.folder / f"{name}.avro", COLUMNS, ("c", number, {"id": number, "n": 1, "born": 0}))
    damaged = fed.folder / "d.avro"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 255]))
    assert "d.avro" in str(fed.run(outcome="failed").reason)
    damaged.unlink()
    fed.run()
    assert [row[0] for row in fed.rows("id")] == [1, 3, 5]


def snappy(out: Any, content: bytes, _level: int | None) -> None:
    data = pa.compress(content, "snappy", asbytes=True) + zlib.crc32(content).to_bytes(4, "big")
    fastavro.schemaless_writer(out, "bytes", data)


def zstandard(out: Any, content: bytes, _level: int | None) -> None:
    fastavro.schemaless_writer(out, "bytes", pa.compress(content, "zstd", asbytes=True))


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard"])
def test_files_of_every_codec_are_read_or_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, codec: str) -> None:
    for name, write_block in (("snappy", snappy), ("zstandard", zstandard)):
        monkeypatch.setitem(fastavro._write.BLOCK_WRITERS, name, write_block)  # type: ignore[attr-defined]
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, {"name": "v", "type": "bytes"}]}
    out = io.BytesIO()
    records = [{"id": n, "v": b"v" * 50} for n in range(1000)]
    fastavro.writer(out, fastavro.parse_schema(schema), records, codec=codec, sync_interval=2000)
    (tmp_path / "a.avro").write_bytes(out.getvalue())

    def read(path: str | None, content: bytes | None) -> list[dict[str, Any]]:
        row = {"number": 3, "file": "file:/a.avro", "path": path, "content": content}
        return [one for batch in read_containers([pa.RecordBatch.from_pylist([row])]) for one in batch.to_pylist()]

    lines = read(str(tmp_path / "a.avro"), None)
    assert lines == read(None, out.getvalue())
    assert [json.loads(line["value"])["payload"]["id"] for line in lines] == [*range(1000)]
    assert [line["arrival"] - (3 << PLACE_BITS) for line in lines] == [*range(1000)]
    rng = random.Random(codec)
    for _ in range(200):
        damaged = mutated_bytes(rng, out.getvalue())
        try:
            read(None, damaged)
        except UnusableFileError as error:
            assert "file:/a.avro" in str(error)
