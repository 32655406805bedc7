"""Drop folded rows that are older than the table's row, a delete, an erasure or a TRUNCATE."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.ingest import tombstones, truncate
from lakecdc.ingest.erased import erased_keys
from lakecdc.ingest.fold import is_suspect
from lakecdc.ingest.lookup import KeyBounds
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from lakecdc.iceberg.table import IcebergTable


@dataclass(frozen=True)
class Compared:
    """What folded rows are compared with.

    :param mark: highest order key that the table has applied.
    :param lowest: lowest order key of the rows; None without any.
    :param truncated: order key of the last TRUNCATE applied, if any.
    :param rows: compare with the table's rows.
    :param deletes: compare with remembered deletes and erasures.
    :param until: ignore deletes with a later source time, but not those without one; default: ignore none.
    """

    mark: str | None
    lowest: str | None
    truncated: str | None = None
    rows: bool = True
    deletes: bool = True
    until: Column | None = None

    @property
    def may_be_newer(self) -> bool:
        """Return whether the table may hold something newer than one of the rows."""
        return self.mark is not None and self.lowest is not None and self.lowest <= self.mark


@dataclass(frozen=True)
class Kept:
    """Rows that are not stale.

    :param suspects: number of rows that were compared with the table's.
    :param dropped: number of rows that were dropped; if 0, the frame is the given one.
    """

    frame: DataFrame
    suspects: int = 0
    dropped: int = 0


def drop_stale(folded: DataFrame, table: IcebergTable, key: Sequence[str], compared: Compared) -> Kept:
    """Drop rows that are older than the table's state.

    Only *suspects* are looked up: rows that are late in their own source partition and whose order key is not above the
    highest one applied so far. "Not older" wins: a row with the stored order key is applied again, which changes
    nothing.

    :param folded: ``key, op, order`` and more, one row per key.
    """
    if compared.mark is None or compared.lowest is None or not compared.may_be_newer:
        return Kept(folded)
    kept = _drop_suspects(folded, table, key, compared, compared.mark)
    if compared.truncated is None or compared.lowest >= compared.truncated:
        return kept
    frame, emptied = truncate.drop_emptied(kept.frame, compared.truncated)
    return Kept(frame, kept.suspects, kept.dropped + emptied) if emptied else kept


def _drop_suspects(folded: DataFrame, table: IcebergTable, key: Sequence[str], compared: Compared, mark: str) -> Kept:
    if not compared.rows and not compared.deletes:
        return Kept(folded)
    suspects = folded.where(is_suspect(mark)).select("op", "key", "order").localCheckpoint()
    bounds = KeyBounds.of(suspects.select("key.*"), key)
    if not bounds.count:
        return Kept(folded)
    voids = []
    if compared.rows:
        voids.append(_older(suspects, bounds.read(table), key))
    remembered = tombstones.open_remembered(table) if compared.deletes else None
    if remembered is not None:
        deletes = bounds.read(remembered).where(F.col(ORDER_COLUMN) >= (compared.truncated or ""))
        if compared.until is not None:
            deletes = deletes.where(F.coalesce(F.col(TIME_COLUMN) <= compared.until, F.lit(True)))
        voids.append(_older(suspects.where("op != 'd'"), deletes, key))
    # late deletes too, which would note the key
    if compared.deletes and (erased := erased_keys(table, suspects, key)) is not None:
        voids.append(erased)
    looked_up = bounds.count if compared.rows else 0
    if not voids:
        return Kept(folded, looked_up)
    void = reduce(DataFrame.union, voids).distinct().localCheckpoint()
    dropped = void.count()
    frame = folded.join(F.broadcast(void), "key", "left_anti") if dropped else folded
    return Kept(frame, looked_up, dropped)


def _older(suspects: DataFrame, held: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the keys of suspects below the order key that is held: ``key``."""
    of_key = F.struct(*[quoted_column(k) for k in key]).alias("key")
    orders = held.select(of_key, F.col(ORDER_COLUMN).alias("held"))
    return orders.join(F.broadcast(suspects), "key").where(F.col("held") > F.col("order")).select("key")
