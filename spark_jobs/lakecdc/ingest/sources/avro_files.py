"""Debezium events in Avro's object container files, which carry their schema, as messages.

The records are decoded by Spark's reader. What a message keeps as its raw value is the same in Debezium's JSON with its
schema, so that the quarantine can enter it again without the file.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.stored_files import read_head
from lakecdc.ingest.formats.avro_schema import AvroSchema, read_schema
from lakecdc.ingest.formats.debezium_avro import refusal
from lakecdc.ingest.formats.messages import from_values
from lakecdc.ingest.sources.file_records import container_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READERS = 8
# most schemas fit into the first, any schema into the last
_HEAD_BYTES = (1 << 16, 1 << 24)


def container_messages(spark: SparkSession, numbers: Mapping[str, int]) -> DataFrame:
    """Return the records of container files as messages in Debezium's JSON with its schema.

    :param numbers: number of every file of the batch.
    :raises InputError: if a file is no container, or its schema cannot be used.
    """
    with ThreadPoolExecutor(_READERS) as pool:
        texts = list(pool.map(lambda name: _schema_text(spark, name), numbers))
    groups: dict[str, list[str]] = {}
    for name, text in zip(numbers, texts, strict=True):
        groups.setdefault(text, []).append(name)
    frames = [_messages(spark, numbers, files, _schema(text, files[0])) for text, files in groups.items()]
    return reduce(lambda a, b: a.unionAll(b), frames)


def _messages(spark: SparkSession, numbers: Mapping[str, int], files: list[str], schema: AvroSchema) -> DataFrame:
    rows = container_records(spark, numbers, files, schema.text)
    plain = schema.plain(F.col("content"))
    payload = F.to_json(plain, {"ignoreNullFields": "false"})
    raw = F.concat(F.lit(f'{{"schema":{schema.connect},"payload":'), payload, F.lit("}"))
    return from_values(rows.withColumn("value", raw))


def _schema(text: str, file: str) -> AvroSchema:
    try:
        schema = read_schema(text)
    except ValueError as error:
        raise InputError(f"The schema of the file {file} cannot be used: {error}.") from error
    reason = refusal(schema)
    if reason:
        raise InputError(f"The schema of the file {file} cannot be used: {reason}")
    return schema


def _schema_text(spark: SparkSession, name: str) -> str:
    """Return the schema in a file's header.

    :raises InputError: if the file has none.
    """
    import fastavro

    problem: Exception | None = None
    for size in _HEAD_BYTES:
        head = read_head(spark, name, size)
        try:
            return str(fastavro.reader(io.BytesIO(head)).metadata["avro.schema"])
        except Exception as error:
            problem = error
    raise InputError(
        f"The file {name} is no Avro container: {problem!r}.",
        hint="Take it out of source.path; files of debezium-avro carry their schema.",
    )
