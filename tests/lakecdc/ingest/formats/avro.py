"""Debezium events in Avro, written by fastavro: wire format with a registry of this process, and container files."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import fastavro

from lakecdc.contract.sources.formats import RegistrySettings
from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decode import decode
from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.formats.avro_registry import Registry
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.messages import SCHEMA
from tests.lakecdc.ingest.by_spark import with_engine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Document = dict[str, Any]
#: key, value, and headers if there are any
Record = tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, Mapping[str, bytes]]


def optional(kind: Any) -> Document:
    """Return the type of a nullable field."""
    return {"type": ["null", kind], "default": None}


SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.test",
    "fields": [
        {"name": "connector", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "snapshot", "type": [{"type": "string", "connect.default": "false"}, "null"], "default": "false"},
        {"name": "db", "type": "string"},
        {"name": "schema", **optional("string")},
        {"name": "table", "type": "string"},
        {"name": "lsn", **optional("long")},
        {"name": "sequence", **optional("string")},
        {"name": "file", **optional("string")},
        {"name": "pos", **optional("long")},
        {"name": "row", **optional("int")},
    ],
}


def envelope_schema(columns: Sequence[Document]) -> Document:
    """Return the schema of a table's envelopes as Debezium's converters register it.

    :param columns: Avro fields of a row.
    """
    value = {"type": "record", "name": "Value", "fields": list(columns)}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "db.shop.products",
        "connect.version": 2,
        "connect.name": "db.shop.products.Envelope",
        "fields": [
            {"name": "before", **optional(value)},
            {"name": "after", **optional("Value")},
            {"name": "source", "type": SOURCE},
            {"name": "transaction", **optional({"type": "record", "name": "block", "fields": [
                {"name": "id", "type": "string"}]})},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", **optional("long")},
        ],
    }  # fmt: skip


def key_schema(*columns: Document) -> Document:
    """Return the schema of a table's keys."""
    return {"type": "record", "name": "Key", "namespace": "db.shop.products", "fields": list(columns)}


def body(schema: Document, record: Document) -> bytes:
    """Return a record without its schema."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), record)
    return out.getvalue()


@dataclass
class Schemas:
    """The schemas of a registry.

    :param documents: schemas by id, or the text of an answer.
    :param failures: how often the next requests are answered by 503.
    :param requests: paths and headers of the requests so far.
    """

    documents: dict[int, Document | str] = field(default_factory=dict)
    failures: int = 0
    requests: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    def message(self, number: int, record: Document, id_bytes: int = 4) -> bytes:
        """Return a record in the wire format."""
        schema = self.documents[number]
        assert isinstance(schema, dict)
        return b"\0" + number.to_bytes(id_bytes, "big") + body(schema, record)

    def answer(self, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        """Return status and body for a request."""
        self.requests.append((path, headers))
        if self.failures:
            self.failures -= 1
            return 503, "later"
        schema = self.documents.get(int(path.rpartition("/")[2]))
        if schema is None:
            return 404, json.dumps({"error_code": 40403})
        raw = path.startswith("/ids/")
        document = schema if isinstance(schema, str) else json.dumps(schema if raw else {"schema": json.dumps(schema)})
        return 200, document


@contextmanager
def served(schemas: Schemas) -> Iterator[str]:
    """Serve a registry over HTTP; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = schemas.answer(self.path, dict(self.headers))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def frame(spark: SparkSession, records: Sequence[Record]) -> DataFrame:
    """Return a message frame of records of one partition."""
    rows = [
        (
            "db.shop.products",
            0,
            i,
            None,
            key,
            value,
            [h for headers in more for h in headers.items()] or None,
            i,
            f"t/0@{i}",
        )
        for i, (key, value, *more) in enumerate(records)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def decode_avro(
    spark: SparkSession,
    schemas: Schemas,
    records: Sequence[Record],
    target: Target,
    known: Known | None = None,
    engine: str = "tasks",
) -> Decoded:
    """Decode records in the wire format while their registry is served.

    :param engine: see :func:`tests.lakecdc.ingest.by_spark.with_engine`.
    """
    with served(schemas) as url, with_engine(engine):
        reading = Reading(1, registry=Registry(RegistrySettings(url)))
        return decode(partial(frame, spark, records), "debezium-avro", target, reading, known or Known({}))
