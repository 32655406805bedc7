"""Decoders survive any bytes: a message is applied, rejected, or recognized as not a row event.

Errors name a damaged Parquet or Avro file.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.formats import TextSettings, XmlSettings
from lakecdc.contract.target import Target
from lakecdc.iceberg.explain import explain
from lakecdc.ingest.engine.decode import decode
from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.engine.records import RowReading, decode_cells
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.messages import from_values
from lakecdc.ingest.sources import file_records
from lakecdc.ingest.sources.file_records import scan_of_containers
from lakecdc.model.order import arrival_of
from tests.lakecdc.ingest.by_spark import with_engine
from tests.lakecdc.ingest.formats.avro import Document, Record, Schemas, decode_avro, envelope_schema, key_schema
from tests.lakecdc.ingest.formats.fuzz import FORMATS, is_json, is_utf8, messages, mutated, mutated_bytes, written
from tests.on_demand import on_demand

TYPES = {"id": "bigint", "name": "string", "description": "string", "weight": "double"}


def places(decoded: Decoded) -> tuple[set[int], set[int]]:
    """Return arrivals of applied and of rejected messages."""
    assert decoded.rows is not None and decoded.rejected is not None
    frames = decoded.rows.frame, decoded.rejected.messages
    applied, rejected = ({arrival_of(row["order"]) for row in frame.select("order").collect()} for frame in frames)
    return applied, rejected


@pytest.mark.parametrize("name", on_demand(FORMATS, in_ci=["debezium-mysql"]))
def test_mutated_messages_are_decoded_or_set_aside(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = tmp_path / "in.jsonl"
    written(path, list(messages(name, 2000, 1)))
    lines = file_records.lines(spark, {path.as_uri(): 0}).persist()
    texts = {r[0]: bytes(r[1]) for r in lines.select("arrival", F.col("value").cast("binary")).collect()}
    good = {text for text, is_good in messages(name, 2000, 1) if is_good}
    # a wrong type in a message would stop a table without chosen types
    target = Target("lake.products", key=("id",), columns=TYPES, source_tables=(".*",), source_column="of")
    with with_engine("spark"):
        decoded = decode(lambda: from_values(lines), FORMATS[name], target, Reading(1), Known(TYPES))
    applied, rejected = places(decoded)
    assert applied | rejected <= {*texts} and len(applied) > 200
    passed_over = [text for arrival, text in texts.items() if arrival not in applied | rejected]
    assert [text for text in passed_over if not is_json(text)] == []
    beside = {text for text in passed_over if text in good}
    assert [texts[a] for a in rejected if texts[a] in good - beside] == []


def test_mutated_avro_is_applied_or_rejected(spark: SparkSession) -> None:
    rng, column = random.Random(3), {"name": "id", "type": "int"}
    fields: list[Document] = [
        column,
        {"name": "name", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "bytes"}},
    ]
    schemas = Schemas({1: key_schema(column), 2: envelope_schema(fields)})
    source = {"connector": "postgresql", "ts_ms": 5, "db": "d", "schema": "s", "table": "t", "snapshot": "false"}
    records: list[Record] = []
    for number in range(500):
        row = {"id": number, "name": "n" * 20, "tags": [b"a", b"b"] * (number % 20)}
        event = {"op": "c", "before": None, "after": row, "source": {**source, "lsn": number}, "ts_ms": 5}
        value = schemas.message(2, event)
        records.append((schemas.message(1, {"id": number}), value if number % 10 == 0 else mutated(rng, value)))
    decoded = decode_avro(
        spark, schemas, records, Target("s.t", key=("id",), source_tables=(".*",), source_column="of")
    )
    applied, rejected = places(decoded)
    assert {*range(0, 500, 10)} <= applied and len(rejected) > 100
    # a mutated operation or table may turn a message into another event; these are few
    assert len(applied | rejected) > 450


@pytest.mark.parametrize("kind", ["csv", pytest.param("text", marks=pytest.mark.soak)])
def test_mutated_lines_are_applied_or_rejected(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    rng, path = random.Random(kind), tmp_path / "in.txt"
    lines = [b"id,name,weight"] if kind == "csv" else []
    good = {n: b'%d,"a, b %d",1.5' % (n, n) for n in range(100)}
    for line in good.values():
        bad = (mutated(rng, line) for _ in range(5))
        lines += [line, *(text for text in bad if len(text.strip()) > 2)]
    path.write_bytes(b"\n".join(lines))
    settings = {"text": TextSettings(r"(?P<id>\d+),(?P<name>.*),(?P<weight>[^,]*)")} if kind == "text" else {}
    source = FilesSource(str(path), kind, **settings)  # type: ignore[arg-type]
    target = Target("s.t", key=("id",), columns={"id": "bigint", "weight": "double"})
    cells = file_records.cells_of_files(spark, {path.as_uri(): 0}, source, {})
    decoded = decode_cells(cells, target, Known({}, folds=False), RowReading(1))
    applied, rejected = places(decoded)
    assert len(applied | rejected) == len(lines) - (kind == "csv") == len(applied) + len(rejected)
    assert decoded.rows is not None
    assert {*good} <= {row["key"]["id"] for row in decoded.rows.frame.select("key").collect()}


def test_mutated_elements_are_applied_or_rejected(spark: SparkSession, tmp_path: Path) -> None:
    rng, path = random.Random(5), tmp_path / "in.xml"
    good = [b'<b n="%d"><id>%d</id><of-all><x>%d</x></of-all><!-- note --></b>' % (n, n, n) for n in range(100)]
    damaged = [mutated(rng, e) for e in good for _ in range(3)]
    parts = [part for n, bad in enumerate(damaged) if is_utf8(bad) for part in (good[n // 3], bad)]
    path.write_bytes(b"<bs>" + b"\n".join(parts) + b"</bs>")
    (tmp_path / "other.xml").write_bytes(b"<bs><b><id>999</id></b><b><id>\xff</id></b></bs>")
    numbers = {path.as_uri(): 0, (tmp_path / "other.xml").as_uri(): 1}
    source = FilesSource(str(path), "xml", xml=XmlSettings("b"))
    cells = file_records.cells_of_files(spark, numbers, source, {})
    decoded = decode_cells(cells, Target("s.t", key=("id",)), Known({}, folds=False), RowReading(1))
    assert decoded.rows is not None and decoded.rejected is not None
    applied = {row["key"]["id"] for row in decoded.rows.frame.select("key").collect()}
    quarantined = b"".join(bytes(row["value"]) for row in decoded.rejected.messages.select("value").collect())
    assert "999" not in applied and b"<id>999</id>" in quarantined
    # a record without an end swallows some of its neighbours
    assert len([n for n in range(len(good)) if str(n) in applied]) > 90
    # a truncated comment ends with the comment of its neighbour, before the neighbour's own end
    lost = [
        e
        for n, e in enumerate(good)
        if e in parts and str(n) not in applied and e.removesuffix(b"</b>") not in quarantined
    ]
    assert lost == []


def parquet_of(ids: range, codec: str) -> bytes:
    """Return a Parquet file of some rows."""
    columns = {
        "id": pa.array(ids, pa.int64()),
        "name": [f"n{i % 7}" for i in ids],
        "tags": [["a", str(i)] for i in ids],
    }
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, compression=codec, row_group_size=20)
    return out.getvalue()


def container_of(ids: range, codec: str) -> bytes:
    """Return a container file with an insert of each row."""
    fields: list[Document] = [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}]
    events = []
    for number in ids:
        source = {"connector": "postgresql", "ts_ms": 5, "db": "d", "schema": "s", "table": "t", "snapshot": "false"}
        row = {"id": number, "name": "n" * 20}
        events.append({"op": "c", "before": None, "after": row, "source": {**source, "lsn": number}, "ts_ms": 5})
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(envelope_schema(fields)), events, codec=codec, sync_interval=400)
    return out.getvalue()


def decode_parquet(spark: SparkSession, numbers: dict[str, int]) -> Decoded:
    cells = file_records.cells_of_files(spark, numbers, FilesSource("unused", "parquet"), {})
    return decode_cells(cells, Target("s.t", key=("id",)), Known({}, folds=False), RowReading(1))


def decode_containers(spark: SparkSession, numbers: dict[str, int]) -> Decoded:
    target = Target("s.t", key=("id",), source_table="s.t")
    scan = scan_of_containers(spark, numbers)
    return decode(scan.frame, "debezium-json", target, Reading(1), Known({}, scan=scan, folds=False))


@pytest.mark.soak
@pytest.mark.parametrize("count", [12, 400])
@pytest.mark.parametrize(
    ("write", "codecs", "read"),
    [
        (parquet_of, ("none", "snappy", "zstd", "gzip"), decode_parquet),
        (container_of, ("null", "null", "deflate", "bzip2"), decode_containers),
    ],
    ids=["parquet", "avro"],
)
def test_mutated_files_are_read_or_named(
    spark: SparkSession,
    tmp_path: Path,
    write: Callable[[range, str], bytes],
    codecs: tuple[str, ...],
    read: Callable[[SparkSession, dict[str, int]], Decoded],
    count: int,
) -> None:
    rng, good, bad = random.Random(f"{write.__name__} {count}"), tmp_path / "good.file", tmp_path / "bad.file"
    good.write_bytes(write(range(1000, 1040), codecs[1]))
    accepted = 0
    for _ in range(count):
        bad.write_bytes(mutated_bytes(rng, write(range(40), rng.choice(codecs))))
        try:
            decoded = read(spark, {good.as_uri(): 0, bad.as_uri(): 1})
            assert decoded.rows is not None
            ids = {int(row["id"]) for row in decoded.rows.frame.select("row.id").collect() if row["id"] is not None}
        except Exception as error:
            explained = explain(error)
            text = explained.text if explained else str(error)
            # an index beyond the dictionary fails behind the reader, where Spark does not know the file
            assert bad.name in text or text.startswith("ArrayIndexOutOfBoundsException"), error
        else:
            accepted += 1
            assert ids >= {*range(1000, 1040)}
        spark.catalog.clearCache()
    assert 0 < accepted < count
