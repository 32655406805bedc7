"""Change events in files: each file is read once per table, in order of the files' names."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError, LakecdcError
from lakecdc.contract.sources.files import FilesSource
from lakecdc.ingest.change import Column, TableBatch
from lakecdc.ingest.formats import debezium_json
from lakecdc.ingest.formats.debezium_json import Survey
from lakecdc.ingest.tables import open_target
from lakecdc.metadata.positions import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target

_EPOCH = 1
_IDENTITY = "files"
# six bytes of a hash name a file in the position; two names collide once in 10^11 pairs
_FINGERPRINT_BYTES = 6
_MAX_FILES = 900


def open_source(spark: SparkSession, spec: JobSpec) -> Files:
    """Open the files source of an ingest spec."""
    assert isinstance(spec.source, FilesSource)
    return Files(spark, spec, spec.source)


class Files:
    """The files that a spec's paths name, as an ingest source."""

    def __init__(self, spark: SparkSession, spec: JobSpec, source: FilesSource) -> None:
        self.spark, self.spec, self.source = spark, spec, source
        self.refused: Mapping[str, Exception] = {}
        self.given_up: Mapping[str, Exception] = {}
        self._positions: dict[str, Position | None] = {}
        self._failed: set[str] = set()
        self._files: list[str] = []

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        """List the files and find out which of them each table has not seen.

        :raises InputError: if a path names nothing that can be read.
        """
        self._positions = dict(positions)
        self.refused = {
            table: InputError(f"It has been fed from a source of type {position.source!r}.", table=table)
            for table, position in positions.items()
            if position and position.source != "files"
        }
        self._failed = set(self.refused)
        self._files = self._list()

    def rounds(self) -> Iterator[list[TableBatch]]:
        """One round: all files a table has not seen, or the first ``max_files_per_run`` of them."""
        batches = []
        for target in self.spec.targets:
            if target.table not in self._failed:
                try:
                    batches.append(self._batch(target))
                except LakecdcError as error:
                    self.failed(target.table, error)
                    self.refused = {**self.refused, target.table: error}
        yield batches

    def applied(self, table: str, position: Position) -> None:
        """Remember where the table stands."""
        self._positions[table] = position

    def failed(self, table: str, error: Exception) -> None:
        """Leave the table out from now on."""
        self._failed.add(table)

    def finish_round(self) -> None:
        """Let go of what the round kept in memory."""
        self.spark.catalog.clearCache()

    def close(self) -> None:
        """Nothing is held."""

    def _list(self) -> list[str]:
        try:
            return sorted(self.spark.read.text(list(self.source.paths)).inputFiles())
        except Exception as error:
            raise InputError(
                f"The files {', '.join(self.source.paths)} cannot be listed: {str(error).splitlines()[0]}",
                hint="Check source.path; a glob must match at least one file.",
            ) from error

    def _batch(self, target: Target) -> TableBatch:
        position = self._positions.get(target.table)
        seen = _decode_seen(position)
        new = [name for name in self._files if _fingerprint(name) not in seen]
        if self.source.max_files_per_run:
            new = new[: self.source.max_files_per_run]
        after = _position(target, seen | {_fingerprint(name) for name in new}, position)
        facts: dict[str, object] = {"files_read": len(new)}
        if not new:
            columns = tuple(Column(k, "string") for k in target.key)
            return TableBatch(target, target.key, columns, None, after, in_order=False, facts=facts)
        return self._decoded(target, new, after, facts)

    def _decoded(self, target: Target, files: list[str], after: Position, facts: dict[str, object]) -> TableBatch:
        lines = self._lines(files)
        envelopes = debezium_json.envelopes(lines, self.source.records, _EPOCH).where("op IS NOT NULL")
        found = _choose(target, debezium_json.survey(envelopes))
        if found is None:
            columns = tuple(Column(k, "string") for k in target.key)
            return TableBatch(target, target.key, columns, None, after, in_order=False, facts=facts)
        table = open_target(self.spark, self.spec.catalog.name, target.table)
        known = {}
        if table is not None:
            known = {f.name: f.dataType.simpleString() for f in self.spark.table(table.sql_name).schema.fields}
        seen = [c for c in found.columns if c.name not in target.exclude_columns]
        absent = [Column(n, t) for n, t in known.items() if n in target.key and n not in {c.name for c in seen}]
        columns = tuple(debezium_json.typed([*seen, *absent], known, target.columns))
        missing = sorted(set(target.key) - {c.name for c in columns})
        if missing:
            raise InputError(f"The key columns {missing} are not in the events.", table=target.table)
        mine = envelopes.where(F.col("source_table").eqNullSafe(F.lit(found.source_table)))
        changes = debezium_json.changes(mine, columns, target.key)
        newest = mine.agg(F.max("source_time")).first()[0]  # type: ignore[index]
        if newest is not None:
            after = replace(after, read_through=newest.replace(tzinfo=UTC).isoformat())
        facts = {**facts, "events": found.events, "source_lag_seconds": _lag(newest)}
        return TableBatch(
            target,
            target.key,
            columns,
            changes,
            after,
            in_order=False,
            truncate_order=found.truncate_order,
            facts=facts,
        )

    def _lines(self, files: list[str]) -> DataFrame:
        """Lines with a number that rises in reading order: rank of the file, MiB of the split, line in the task."""
        ranks = F.create_map(*[F.lit(x) for i, name in enumerate(files) for x in (name, i)])
        rank = F.element_at(ranks, F.input_file_name())
        block = F.shiftright(F.input_file_block_start(), 20)
        line = F.monotonically_increasing_id().bitwiseAND(F.lit(0xFFFFFF))
        arrival = F.shiftleft(rank.cast("bigint"), 48) + F.shiftleft(block, 24) + line
        frame = self.spark.read.text(files).select("value", arrival.alias("arrival"))
        return frame.where("length(trim(value)) > 0")


def _choose(target: Target, surveys: list[Survey]) -> Survey | None:
    """The source table that feeds a target.

    :raises InputError: if the events are of several tables and the target does not say which it wants.
    """
    by_name = {s.source_table or "": s for s in surveys}
    if target.source_table:
        return by_name.get(target.source_table)
    if len(surveys) <= 1:
        return surveys[0] if surveys else None
    stem = target.table.rpartition(".")[2]
    own = [s for name, s in by_name.items() if name.rpartition(".")[2] == stem]
    if len(own) == 1:
        return own[0]
    raise InputError(
        f"The events are of several source tables: {', '.join(sorted(by_name))}.",
        table=target.table,
        hint='Name the one to take as "source_table" in the target.',
    )


def _fingerprint(name: str) -> str:
    digest = hashlib.blake2b(name.encode(), digest_size=_FINGERPRINT_BYTES).digest()
    return base64.urlsafe_b64encode(digest).decode()


def _decode_seen(position: Position | None) -> set[str]:
    text = position.offsets.get("files", "") if position else ""
    size = len(_fingerprint(""))
    return {text[i : i + size] for i in range(0, len(text), size)}


def _position(target: Target, seen: set[str], before: Position | None) -> Position:
    if len(seen) > _MAX_FILES:
        raise InputError(
            f"{len(seen)} files would be recorded; one table can remember {_MAX_FILES}.",
            table=target.table,
            hint="Merge the event files, or move read ones away and begin a new table.",
        )
    read_through = before.read_through if before else None
    return Position("files", _IDENTITY, {"files": "".join(sorted(seen))}, read_through)


def _lag(newest: datetime | None) -> float | None:
    return round((datetime.now(UTC) - newest.replace(tzinfo=UTC)).total_seconds(), 3) if newest else None
