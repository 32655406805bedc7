"""Replay quarantined messages with their original order keys.

The targets' positions do not change; events older than the stored row or a remembered delete change nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from lakecdc.contract.errors import InputError
from lakecdc.contract.feeding import ReplayQuarantineOptions
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.iceberg.table import IcebergTable, open_if_there
from lakecdc.ingest import quarantine
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.engine.decode import decode
from lakecdc.ingest.engine.decoded import Decoded
from lakecdc.ingest.engine.kept_rows import decode_kept
from lakecdc.ingest.engine.records import decode_cells
from lakecdc.ingest.formats.avro_registry import Registry
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.rows import read_cells
from lakecdc.ingest.source_columns import remembered
from lakecdc.ingest.sources.files import row_reading
from lakecdc.ingest.sources.message_batches import BatchSource, known_of, table_batch
from lakecdc.metadata.positions import Position

# most reasons in the report
_REASONS = 5


class Quarantine(BatchSource):
    """The quarantined messages of a spec's targets as an ingest source."""

    def __init__(self, spark: SparkSession, spec: JobSpec) -> None:
        assert isinstance(spec.options, ReplayQuarantineOptions)
        super().__init__(spark, spec)
        self.options = spec.options
        self._positions: dict[str, Position] = {}
        self._entered: dict[str, tuple[DataFrame, str]] = {}
        self._numbers: dict[str, Counter[str]] = {}
        self._reason_counts: dict[str, Counter[str]] = {}
        self._tables: dict[str, IcebergTable] = {}
        settings = getattr(spec.source, "registry", None)
        self._registry = Registry(settings) if settings else None

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        """Refuse targets that were never fed, and note the positions of the others."""
        self.refused = {
            name: InputError("The table was never fed, so it has no messages in quarantine.", table=name)
            for name, position in positions.items()
            if position is None
        }
        self._positions = {name: position for name, position in positions.items() if position is not None}

    def rounds(self) -> Iterator[list[Batch]]:
        """Yield a round for each epoch of a table's messages; quarantined rows have rounds of their own."""
        waiting = {t.table: self._epochs(t) for t in self.spec.targets if t.table in self._positions}
        for turn in range(max(map(len, waiting.values()), default=0)):
            fed = [t for t in self.spec.targets if turn < len(waiting.get(t.table, ())) and t.table in self._positions]
            yield [self._batch(target, *waiting[target.table][turn]) for target in fed]

    def applied(self, table: str, position: Position) -> None:
        """Release the applied messages."""
        entered, epoch = self._entered.pop(table, (None, ""))
        if entered is not None:
            quarantine.release(self._tables[table], table, entered, epoch)

    def failed(self, table: str, error: Exception) -> None:
        self._entered.pop(table, None)
        self._positions.pop(table, None)

    def _epochs(self, target: Target) -> list[tuple[str, bool]]:
        name = quarantine.table_name(self.options, target.table)
        table = open_if_there(self.spark, self.spec.catalog.name, name)
        if table is None:
            return []
        self._tables[target.table] = table
        return quarantine.epochs(table, target.table, self.options.rules)

    def _batch(self, target: Target, epoch: str, own: bool) -> Batch:
        table, rules, position = self._tables[target.table], self.options.rules, self._positions[target.table]
        if own or not hasattr(self.spec.source, "format"):
            messages = quarantine.rows(table, target.table, rules, epoch, own=own).localCheckpoint()
            decoded = self._of_rows(target, messages)
        else:
            messages = quarantine.messages(table, target.table, rules, epoch).localCheckpoint()
            decoded = self._decoded(target, messages, position, epoch)
        waiting = messages.count()
        self._entered[target.table] = messages.select("place").distinct().localCheckpoint(), epoch
        numbers = self._numbers.setdefault(target.table, Counter())
        numbers.update(quarantined_before=waiting, quarantined_still=decoded.rejections)
        facts: dict[str, object] = dict(numbers)
        if decoded.rejected is not None:
            self._stays(target.table, decoded.rejected.messages.select("place"))
            facts["quarantined_because"] = self._reasons(target.table, decoded.rejected.messages)
        batch = table_batch(target, decoded, position, facts)
        return replace(batch, source=replace(batch.source, stays=partial(self._stays, target.table)))

    def _stays(self, table: str, places: DataFrame) -> None:
        """Keep messages that are rejected again."""
        entered, epoch = self._entered[table]
        self._entered[table] = entered.join(places, "place", "left_anti").localCheckpoint(), epoch

    def _reasons(self, table: str, rejected: DataFrame) -> dict[str, int]:
        """Return the most frequent reasons of messages that stay, and their counts."""
        reasons = self._reason_counts.setdefault(table, Counter())
        reasons.update({row["reason"]: row["count"] for row in rejected.groupBy("reason").count().collect()})
        return dict(reasons.most_common(_REASONS))

    def _of_rows(self, target: Target, rows: DataFrame) -> Decoded:
        table = open_if_there(self.spark, self.spec.catalog.name, target.table)
        assert table is not None
        infinity = getattr(self.spec.source, "infinity", "quarantine")
        return decode_kept(rows, target, known_of(table, target), remembered(table, target.feed), infinity)

    def _decoded(self, target: Target, messages: DataFrame, position: Position, epoch: str) -> Decoded:
        source = self.spec.source
        known = self.known(target)
        if isinstance(source, FilesSource) and source.has_rows:
            return decode_cells(read_cells(messages, source, known.types), target, known, row_reading(source))
        reading = Reading(
            int(epoch, 16) if epoch else int(position.offsets.get("epoch", 1)),
            getattr(source, "unavailable_value", Reading.unavailable_value),
            getattr(source, "order_by", None),
            self._registry,
            routed=isinstance(source, KafkaSource),
        )
        known = replace(known, high_order=position.high_order)
        name: str = source.format  # type: ignore[union-attr]
        if name == "debezium-avro" and self._registry is None:
            # container files' records are quarantined as JSON
            name = "debezium-json"
        return decode(lambda: messages, name, target, reading, known)


open_source = Quarantine
