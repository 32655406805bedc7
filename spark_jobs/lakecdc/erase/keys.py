"""The keys whose rows go: read where they are named, never told."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError, UnsupportedError
from lakecdc.iceberg.definition import spark_types
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.erased import key_hash
from lakecdc.ingest.formats.changes import exact_json
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakecdc.contract.erasing import EraseRowsOptions

_READERS = {"parquet": {}, "csv": {"header": "true"}, "json": {}}
# of these files hold what readers show
_PLAIN = ("tinyint", "smallint", "int", "bigint", "string", "date", "boolean")


@dataclass(frozen=True)
class Keys:
    """Keys of one table.

    :param frame: distinct, columns ``columns``.
    :param columns: the table's key.
    :param count: how many there are.
    :param digest: SHA-256 of their hashes, by which a certificate tells what was looked for.
    """

    frame: DataFrame
    columns: tuple[str, ...]
    count: int
    digest: str


def read_keys(table: IcebergTable, options: EraseRowsOptions, history: IcebergTable | None) -> Keys:
    """The keys that the options name.

    :param history: the table's history table.
    :raises SpecError: the condition is about the key.
    :raises InputError: the table has no key, or what is named has no such columns or a key with a null.
    :raises UnsupportedError: the key has a type that stands in files otherwise than readers show it.
    """
    columns = tuple(table.identifier_columns)
    if not columns:
        raise InputError(
            "It has no key.", table=table.name, hint="Set its identifier fields: ALTER TABLE … SET IDENTIFIER FIELDS …."
        )
    types = spark_types(table)
    for column in columns:
        if types[column] not in _PLAIN and not types[column].startswith("decimal"):
            raise UnsupportedError(f"Its key column {column!r} is of type {types[column]}.", table=table.name)
    options.refuse_key_in_condition(columns, table.name)
    found = _named(table, options, history, columns)
    if missing := [column for column in columns if column not in found.columns]:
        raise InputError(
            f"What names the keys has no column {missing[0]!r}.",
            table=table.name,
            hint=f"It needs the columns {', '.join(columns)}, as the table calls them.",
        )
    frame = found.select(*[F.col(quoted_column(c)).cast(types[c]).alias(c) for c in columns]).distinct()
    frame = frame.localCheckpoint()
    if frame.where(" OR ".join(f"{quoted_column(c)} IS NULL" for c in columns)).take(1):
        raise InputError(
            "Of what names the keys, some row has no value of the key's type.",
            table=table.name,
            hint="Correct the values; nothing was changed.",
        )
    hashes = sorted(row[0] for row in frame.select(key_hash(table.uuid, key_text(columns))).collect())
    return Keys(frame, columns, len(hashes), hashlib.sha256("".join(hashes).encode()).hexdigest())


def key_text(columns: Sequence[str]) -> Column:
    """The key of a row as one text, as the quarantine's ``row_key`` has it."""
    return exact_json(F.struct(*[F.col(quoted_column(c)).alias(f"k{i}") for i, c in enumerate(columns)]))


def _named(
    table: IcebergTable, options: EraseRowsOptions, history: IcebergTable | None, columns: Sequence[str]
) -> DataFrame:
    spark = table.spark
    if options.keys_table:
        return IcebergTable(spark, table.catalog, options.keys_table).read()
    if options.keys_uri:
        kind = options.keys_uri.rstrip("/").rpartition(".")[2].lower()
        if kind not in _READERS:
            raise InputError(
                f"options.keys_uri ends with {kind!r}.", table=table.name, hint=f"It ends with {', '.join(_READERS)}."
            )
        return spark.read.format(kind).options(**_READERS[kind]).load(options.keys_uri)
    condition, listed = str(options.condition), ", ".join(map(quoted_column, columns))
    found = table.read(columns=listed, where=condition)
    return found if history is None else found.union(history.read(columns=listed, where=condition))
