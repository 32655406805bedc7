"""The keys to erase: read from the tables and files named in the options, never shown."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.erasing import EraseRowsOptions
from lakecdc.contract.errors import InputError, SpecError, UnsupportedError
from lakecdc.erase.rewrite import JOB
from lakecdc.iceberg.definition import spark_types
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.api import erased
from lakecdc.metadata import names
from lakecdc.metadata.erasure import unfinished_erasure
from lakecdc.sql import exact_json, quoted_column

_READERS = {"parquet": {}, "csv": {"header": "true"}, "json": {}}
# types that files store as readers show them
_PLAIN = ("tinyint", "smallint", "int", "bigint", "string", "date", "boolean")


@dataclass(frozen=True)
class Keys:
    """Distinct keys of one table, by field id; the digest of their hashes identifies them in a certificate."""

    frame: DataFrame
    columns: tuple[str, ...]
    count: int
    digest: str


def read_keys(table: IcebergTable, options: EraseRowsOptions, history: IcebergTable | None) -> Keys:
    """Read the keys that the options name.

    :raises SpecError: no option names the keys, or the condition uses a key column.
    :raises InputError: the table has no key, the named table or files lack a key column or have a null key, or the rows
        that meet the condition may already be gone.
    :raises UnsupportedError: files store the key's type in another form than readers show it.
    """
    columns = erased.in_field_order(table, table.identifier_columns)
    if not columns:
        raise InputError(
            "It has no key.", table=table.name, hint="Set its identifier fields: ALTER TABLE … SET IDENTIFIER FIELDS …."
        )
    types = spark_types(table)
    for column in columns:
        if types[column] not in _PLAIN and not types[column].startswith("decimal"):
            raise UnsupportedError(
                f"Its key column {column!r} has the unsupported type {types[column]}.", table=table.name
            )
    options.refuse_key_in_condition(columns, table.name)
    listed = _named(table, options, history, columns)
    if missing := [column for column in columns if column not in listed.columns]:
        raise InputError(
            f"The list of keys has no column {missing[0]!r}.",
            table=table.name,
            hint=f"Give it the columns {', '.join(columns)}, named as in the table.",
        )
    # the error of a cast shows the value
    frame = listed.select(*[F.col(quoted_column(c)).try_cast(types[c]).alias(c) for c in columns]).distinct()
    frame = frame.localCheckpoint()
    if frame.where(" OR ".join(f"{quoted_column(c)} IS NULL" for c in columns)).take(1):
        raise InputError(
            "The list of keys has a row without a value of the key's type.",
            table=table.name,
            hint="Correct the values; nothing was changed.",
        )
    hashes = sorted(row[0] for row in frame.select(erased.key_hash(table.uuid, key_text(columns))).collect())
    keys = Keys(frame, columns, len(hashes), hashlib.sha256("".join(hashes).encode()).hexdigest())
    if options.condition:
        _refuse_half_erased(table, history, keys)
    return keys


def key_text(columns: Sequence[str]) -> Column:
    """Return a row's key as text, as in the quarantine's ``row_key`` for key columns in this order."""
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
                f"options.keys_uri ends with {kind!r}.", table=table.name, hint=f"Use one of {', '.join(_READERS)}."
            )
        return spark.read.format(kind).options(**_READERS[kind]).load(options.keys_uri)
    if not options.condition:
        raise SpecError(
            "No option names the keys to erase.",
            table=table.name,
            hint="Give one of options.keys_table, options.keys_uri and options.condition.",
        )
    listed = ", ".join(map(quoted_column, columns))
    matching = table.read(columns=listed, where=options.condition)
    if history is None:
        return matching
    # a TRUNCATE in a history table has no key
    return matching.union(history.read(columns=listed, where=options.condition).dropna())


def _refuse_half_erased(table: IcebergTable, history: IcebergTable | None, keys: Keys) -> None:
    """Refuse a condition that no longer finds the keys of an unfinished erasure, whose rows may be gone."""
    if unfinished_erasure(table.properties) in (None, keys.digest):
        return
    hint = "Name the keys by options.keys_table or options.keys_uri."
    before = [(each.name, ids[-1]) for each in (table, history) if each and (ids := snapshots_before(each))]
    if before:
        states = " and ".join(f"{name} VERSION AS OF {snapshot_id}" for name, snapshot_id in before)
        hint = f"Make a table of the keys of the rows that meet it in {states}, and name it as options.keys_table."
    raise InputError(
        "An erasure has not finished, and rows that met its condition may be gone.",
        table=table.name,
        hint=f"{hint} If it was of other rows, unset the table property {names.ERASED}.",
    )


def snapshots_before(table: IcebergTable) -> list[int]:
    """Return the parents of erasure snapshots that still exist, newest first."""
    parents = [snapshot.parent_id for snapshot in table.ancestors() if snapshot.summary.get(names.JOB) == JOB]
    return [parent for parent in parents if parent is not None and table.snapshot(parent) is not None]
