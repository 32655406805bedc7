"""Keep the log of failing tables in the lake, so that the source can remove it.

One Iceberg table per namespace, ``<namespace>.lakecdc_parked``, partitioned by target. It has the decoded rows of every
round that a failing table could not apply, and one row of kind ``end`` that closes the round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError, LakecdcError
from lakecdc.iceberg import definition
from lakecdc.iceberg.table import IcebergTable, delete_rows, exists
from lakecdc.ingest.sources.log.summary import EVENTS
from lakecdc.local_relation import local_relation
from lakecdc.metadata.names import parked_of
from lakecdc.metadata.positions import Position
from lakecdc.model.positions import log_position

_DECODED = [column.split(" ") for column in EVENTS.split(", ")]
_SCHEMA = f"target string, through bigint, {EVENTS}"


@dataclass(frozen=True)
class Parked:
    """A table's part of one round.

    :param through: place in the log, as a number, where the round ended.
    :param moment: source time at the end of the round.
    :param summary: the table's part of the round's summary, as JSON.
    :param offsets: of the table's position after the round.
    :param since: place where the table's part begins.
    """

    through: int
    moment: datetime
    identity: str
    relation: int
    summary: Mapping[str, Any]
    offsets: Mapping[str, Any]
    since: int


class Parking:
    """The parked rounds of a run's targets."""

    def __init__(self, spark: SparkSession, catalog: str) -> None:
        self._spark, self._catalog = spark, catalog

    def load(self, targets: Iterable[str]) -> tuple[dict[str, list[Parked]], dict[str, LakecdcError]]:
        """Return the parked rounds by target, oldest first, and the errors of targets whose rounds cannot be loaded."""
        by_table: dict[str, list[str]] = {}
        for target in targets:
            by_table.setdefault(parked_of(target), []).append(target)
        by_target: dict[str, list[Parked]] = {}
        failed: dict[str, LakecdcError] = {}
        for name, names in by_table.items():
            try:
                if not exists(self._spark, self._catalog, name):
                    continue
                ends = self._rows(name).where((F.col("kind") == "end") & F.col("target").isin(names))
            except LakecdcError as error:
                failed |= dict.fromkeys(names, error)
                continue
            for row in ends.select("target", "summary").orderBy("through").collect():
                try:
                    parked = msgspec.json.decode(row["summary"], type=Parked)
                except msgspec.MsgspecError:
                    failed[row["target"]] = _unreadable(row["target"])
                    continue
                by_target.setdefault(row["target"], []).append(parked)
        return by_target, failed

    def park(self, target: str, parked: Parked, events: DataFrame | None) -> None:
        """Store a part of a round in one commit.

        :param events: rows of :data:`log.summary.EVENTS`; None if it has none.
        """
        name = parked_of(target)
        if not exists(self._spark, self._catalog, name):
            self._create(name)
        rows = local_relation(self._spark, [_end(target, parked)], _SCHEMA)
        if events is not None:
            place = F.lit(target).alias("target"), F.lit(parked.through).alias("through")
            rows = rows.unionByName(events.select(*place, "*"))
        rows.coalesce(1).writeTo(self._table(name).sql_name).append()

    def events(self, target: str, parked: Parked) -> DataFrame:
        """Return the events of a parked round, rows of :data:`log.summary.EVENTS`."""
        its = (F.col("target") == target) & (F.col("through") == parked.through)
        rows = self._rows(parked_of(target)).where(its & (F.col("relation") == parked.relation))
        return rows.where(F.col("kind") != "end").select(*[column for column, _ in _DECODED])

    def forget(self, target: str, through: int) -> None:
        """Delete the rounds of a target up to a place."""
        name = self._table(parked_of(target)).sql_name
        statement = f"DELETE FROM {name} WHERE target = :target AND through <= :through"
        self._spark.sql(statement, {"target": target, "through": through})

    def remove(self, target: str, settled: Sequence[Parked]) -> None:
        """Delete rounds that are :func:`settled_rounds`.

        :raises ConflictError: ingestion deleted some of them meanwhile.
        """
        ends = ", ".join(str(parked.through) for parked in settled)
        delete_rows(self._table(parked_of(target)), f"target = :target AND through IN ({ends})", {"target": target})

    def _table(self, name: str) -> IcebergTable:
        return IcebergTable(self._spark, self._catalog, name)

    def _rows(self, name: str) -> DataFrame:
        return self._spark.table(self._table(name).sql_name)

    def _create(self, name: str) -> None:
        columns = [("target", "string", True), ("through", "bigint", True), *((c, t, False) for c, t in _DECODED)]
        more = definition.COPY_ON_WRITE
        definition.create_side_table(
            self._spark, self._catalog, name, columns, partition_by=("target",), properties=more
        )


def _unreadable(target: str) -> InputError:
    return InputError(
        "The parked log of the table was written by an earlier version and cannot be read.",
        table=target,
        hint=f"Delete its rows from {parked_of(target)}, then run once with "
        f'"reload": ["{target}"] in options to reload it.',
    )


def settled_rounds(parked: Sequence[Parked], position: Position | None) -> list[Parked]:
    """Return the rounds that a table has applied, or that a full load has made void.

    :param position: the table's position; without one no round is settled.
    """
    at = log_position(position)
    if at is None or position is None:
        return []
    # a table rolled back to a position of an earlier cluster needs the later cluster's rounds if it is rolled forward
    read_through = datetime.fromisoformat(position.read_through) if position.read_through else None
    pending = [
        p
        for p in parked
        if (p.through > at.number if p.identity == position.identity else not read_through or p.moment > read_through)
    ]
    # the rows of two clusters' rounds with the same end cannot be distinguished
    ends = {p.through for p in pending}
    return [p for p in parked if p.through not in ends]


def _end(target: str, parked: Parked) -> tuple[object, ...]:
    known = {"relation": parked.relation, "kind": "end", "summary": msgspec.json.encode(parked).decode()}
    return target, parked.through, *(known.get(column) for column, _ in _DECODED)
