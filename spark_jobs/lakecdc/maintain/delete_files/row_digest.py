"""Order-independent digests of rows, by file and position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: number of rows, and two order-independent sums of their hashes
Digest = tuple[int, int, int]
NO_ROWS: Digest = (0, 0, 0)


def digest(rows: DataFrame) -> Digest:
    """Compute the digest of a set of rows in one pass.

    :param rows: with the columns ``_file`` and ``_pos``.
    """
    row = _digests(rows).first()
    assert row is not None
    return row["rows"], row["x"] or 0, row["s"] or 0


def digests_by_file(rows: DataFrame) -> dict[str, Digest]:
    """Compute the digest of each file; grouping by file names dominates the cost.

    :param rows: as for :func:`digest`.
    """
    return {row["_file"]: (row["rows"], row["x"], row["s"]) for row in _digests(rows, "_file").collect()}


def _digests(rows: DataFrame, *by: str) -> DataFrame:
    place = F.xxhash64("_file", "_pos")
    # a sum of whole 64-bit hashes would overflow
    low_half = F.sum(place.bitwiseAND(F.lit(0xFFFFFFFF)))
    return rows.groupBy(*by).agg(F.count("*").alias("rows"), F.bit_xor(place).alias("x"), low_half.alias("s"))
