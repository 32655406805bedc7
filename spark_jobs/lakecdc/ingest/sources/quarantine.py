"""The quarantine as a source: its messages are decoded again, with the order keys they had.

The targets' positions stay where they are; what is older than the stored row or a remembered delete changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.options import ReplayQuarantineOptions
from lakecdc.contract.sources.files import FilesSource
from lakecdc.ingest import quarantine
from lakecdc.ingest.change import TableBatch
from lakecdc.ingest.formats.avro_registry import Registry
from lakecdc.ingest.formats.decode import Decoded, Known, decode
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.rows import read_cells
from lakecdc.ingest.formats.rows.changes import decode_cells
from lakecdc.ingest.sources.files import row_reading
from lakecdc.ingest.sources.message_batches import known_types, table_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.metadata.positions import Position


class Quarantine:
    """The quarantined messages of a spec's targets, as an ingest source."""

    def __init__(self, spark: SparkSession, spec: JobSpec) -> None:
        assert isinstance(spec.options, ReplayQuarantineOptions)
        self.spark, self.spec, self.options = spark, spec, spec.options
        self.refused: Mapping[str, Exception] = {}
        self.given_up: Mapping[str, Exception] = {}
        self._positions: dict[str, Position] = {}
        self._entered: dict[str, DataFrame] = {}
        settings = getattr(spec.source, "registry", None)
        self._registry = Registry(settings) if settings else None

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        """Take the targets in that have been fed from this source.

        :raises InputError: if the source has no messages.
        """
        if not hasattr(self.spec.source, "format"):
            raise InputError(
                "This source has no messages that could enter again.",
                hint="For a source of type jdbc correct the target's columns and run the interval again.",
            )
        self.refused = {
            name: InputError("It has not been fed yet, so nothing of it is in quarantine.", table=name)
            for name, position in positions.items()
            if position is None
        }
        self._positions = {name: position for name, position in positions.items() if position is not None}

    def rounds(self) -> Iterator[list[TableBatch]]:
        """One round with everything that waits."""
        yield [b for t in self.spec.targets if t.table in self._positions and (b := self._batch(t)) is not None]

    def applied(self, table: str, position: Position) -> None:
        """Release what has been applied."""
        entered = self._entered.pop(table, None)
        if entered is not None:
            kept = quarantine.open_quarantine(self.spark, self.spec.catalog.name, self._name(table))
            assert kept is not None
            quarantine.release(kept, table, entered)

    def failed(self, table: str, error: Exception) -> None:
        """Its messages stay."""
        self._entered.pop(table, None)

    def finish_round(self) -> None:
        """Let go of what the round kept in memory."""
        self.spark.catalog.clearCache()

    def close(self) -> None:
        """Nothing is held."""

    def _name(self, target: str) -> str:
        return quarantine.table_name(self.options, target)

    def _batch(self, target: Target) -> TableBatch | None:
        table = quarantine.open_quarantine(self.spark, self.spec.catalog.name, self._name(target.table))
        if table is None:
            return None
        messages = quarantine.messages(table, target.table, self.options.rules).localCheckpoint()
        waiting = messages.count()
        if not waiting:
            return None
        position = self._positions[target.table]
        found = self._decoded(target, messages, position)
        entered = messages.select("place")
        if found.rejected is not None:
            entered = entered.join(found.rejected.select("place"), "place", "left_anti")
        self._entered[target.table] = entered.distinct().localCheckpoint()
        facts = {"quarantined_before": waiting, "quarantined_still": found.rejections}
        return replace(table_batch(target, found, position, facts), origin=self._kept_back(target.table, found))

    def _kept_back(self, table: str, found: Decoded) -> Callable[[DataFrame], DataFrame]:
        """What the batch's messages are found by; those that are looked for stay in quarantine."""

        def find(events: DataFrame) -> DataFrame:
            assert found.origin is not None
            messages = found.origin(events).localCheckpoint()
            entered = self._entered[table].join(messages.select("place"), "place", "left_anti")
            self._entered[table] = entered.localCheckpoint()
            return messages

        return find

    def _decoded(self, target: Target, messages: DataFrame, position: Position) -> Decoded:
        source = self.spec.source
        types = known_types(self.spark, self.spec.catalog.name, target)
        if isinstance(source, FilesSource) and source.has_rows:
            return decode_cells(read_cells(messages, source, types), target, types, row_reading(source))
        order_by = getattr(source, "order_by", None)
        reading = Reading(
            int(position.offsets.get("epoch", 1)),
            getattr(source, "unavailable_value", Reading.unavailable_value),
            {"order_by": order_by} if order_by else {},
            self._registry,
        )
        known = Known(types, high_order=position.high_order, engine="jvm")
        name: str = source.format  # type: ignore[union-attr]
        if name == "debezium-avro" and self._registry is None:
            # records of container files are kept as what they say in JSON
            name = "debezium-json"
        return decode(lambda: messages, name, target, reading, known)


def open_source(spark: SparkSession, spec: JobSpec) -> Quarantine:
    """Open the quarantine of a replay spec."""
    return Quarantine(spark, spec)
