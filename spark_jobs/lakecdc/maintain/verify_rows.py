"""Prove that rewritten files have the rows that were read, by an order-independent hash of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakecdc.contract.errors import VerificationError
from lakecdc.contract.rewriting import VerifiedOptions
from lakecdc.iceberg.rewrite_tasks import INHERITED_LINEAGE
from lakecdc.metadata.names import ROW_ID, UPDATED
from lakecdc.sql import exact_json, holds, quoted_column

#: a sample hashes the first column and every eighth one
_SAMPLE_STEP = 8
LINEAGE = (ROW_ID, UPDATED)
# xxhash64 in three pieces whose sums fit into 64 bits for any number of rows in a commit
_PIECES = ("shiftright({0}, 42)", "shiftright({0}, 21) & 2097151", "{0} & 2097151")


@dataclass(frozen=True)
class Fingerprint:
    """Order-independent hash of a set of rows: their number, and sums of three pieces of each row's 64-bit hash."""

    rows: int
    sums: tuple[int, ...]


NO_ROWS = Fingerprint(0, (0,) * len(_PIECES))


@dataclass(frozen=True)
class Proof:
    """The comparison before a rewrite is published.

    :param columns: the hashed columns; empty if only the number of rows is compared.
    :param states: description of the proof in the report.
    """

    columns: tuple[str, ...]
    states: str
    keep_failed: bool = False

    def measures(self) -> list[Column]:
        """Return the aggregates of a :class:`Fingerprint`, for a pass over rows with these columns."""
        aggregates = [F.count(F.lit(1)).alias("rows")]
        if self.columns:
            for number, piece in enumerate(_PIECES):
                aggregates.append(F.sum(F.expr(piece.format("_lakecdc_hash"))).alias(f"sum{number}"))
        return aggregates

    def hashed(self, rows: DataFrame) -> DataFrame:
        """Add the hash of each row as ``_lakecdc_hash``."""
        if not self.columns:
            return rows
        # xxhash64 skips nulls, so the hash includes their places: (null, 1) is not (1, null)
        parts = [part for c in self.columns for part in (_hashable(rows.schema, c), F.isnull(F.col(quoted_column(c))))]
        return rows.withColumn("_lakecdc_hash", F.xxhash64(*parts))


def proof(options: VerifiedOptions, columns: Sequence[str]) -> Proof:
    """Choose the proof for the options, over all or some of the columns that are read and written."""
    if options.verify in ("auto", "full"):
        return Proof(tuple(columns), "all rows, all columns", options.keep_failed_files)
    if options.verify == "sample":
        some = tuple(columns[::_SAMPLE_STEP])
        states = f"all rows, {len(some)} of {len(columns)} columns: {', '.join(some)}"
        return Proof(some, states, options.keep_failed_files)
    return Proof((), f"nothing: {options.verify_off_reason}")


def fingerprint(values: Any) -> Fingerprint:
    """Build a fingerprint from the aggregates of :meth:`Proof.measures`."""
    sums = values if isinstance(values, dict) else values.asDict()
    return Fingerprint(int(sums["rows"]), tuple(int(sums.get(f"sum{n}") or 0) for n in range(len(_PIECES))))


def read_back(rows: DataFrame, proof: Proof) -> Fingerprint:
    """Compute the fingerprint of files in a separate pass, with inherited row lineage as null."""
    for column in LINEAGE:
        if column in rows.columns:
            rows = rows.withColumn(column, F.when(F.col(column) < INHERITED_LINEAGE, F.col(column)))
    return fingerprint(proof.hashed(rows).agg(*proof.measures()).collect()[0])


def check(table: str, expected: Fingerprint, actual: Fingerprint) -> None:
    """Raise VerificationError if the written rows differ from the rows read."""
    if actual != expected:
        raise VerificationError(
            f"Expected {expected.rows} rows in the rewritten files, got {actual.rows}"
            f"{'' if actual.rows != expected.rows else ' with other values'}.",
            table=table,
            hint="Nothing was published. If it happens again, check the storage and the Spark version.",
            expected_rows=expected.rows,
            found_rows=actual.rows,
        )


def _hashable(schema: StructType, column: str) -> Column:
    value = F.col(quoted_column(column))
    return exact_json(value) if holds(schema[column].dataType, "variant") else value
