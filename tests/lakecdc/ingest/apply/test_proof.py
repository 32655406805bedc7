"""Each condition of the proof that a log inserts keys which its table does not have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from lakecdc.contract.target import Cleaning, Target
from lakecdc.iceberg.fence import KnownRows
from lakecdc.iceberg.table import Snapshot
from lakecdc.ingest.apply.proof import Standing, refusal_of_proof, rows_below
from lakecdc.ingest.batch import Batch, CommitPlan, SourceFacts
from lakecdc.ingest.floor import BelowFloor
from lakecdc.metadata import names
from lakecdc.metadata.last_write import may_add_rows
from lakecdc.metadata.positions import Position, encode_idle
from lakecdc.model.order import RANK_READ, order_key

LOADED = Position("postgres", "one", {"lsn": "0/64"})
AFTER = Position("postgres", "one", {"lsn": "0/C8"}, high_order=order_key(1, 180, 3))
BELOW = order_key(1, 100, rank=RANK_READ)
STANDING = Standing(1, LOADED, BELOW)
BATCH = Batch(
    Target("n.t", ("id",)),
    ("id",),
    (),
    None,
    AFTER,
    source=SourceFacts(unproven=None),
    commit=CommitPlan(first_order=order_key(1, 100)),
)


def test_an_insert_above_all_rows_is_proven() -> None:
    assert refusal_of_proof(STANDING, BATCH, AFTER) is None
    # rows are known to lie below the position that the table has read
    assert rows_below(STANDING, BATCH, AFTER) == order_key(1, 200, rank=RANK_READ)
    assert rows_below(STANDING, BATCH, replace(AFTER, high_order=order_key(1, 300))) == order_key(1, 300)
    repaired = replace(LOADED, offsets={"lsn": "0/64", "loaded": "0/12C"})
    assert rows_below(STANDING, BATCH, repaired) == order_key(1, 300, rank=RANK_READ)


def of_target(**settings: Any) -> Batch:
    return replace(BATCH, target=replace(BATCH.target, **settings))


def of_commit(**plan: Any) -> Batch:
    return replace(BATCH, commit=replace(BATCH.commit, **plan))


def at(**offsets: Any) -> Standing:
    return replace(STANDING, position=replace(LOADED, offsets={**LOADED.offsets, **offsets}))


REJECTED: Any = object()
#: failing condition, batch, earlier state, and whether the table's rows stay known
REFUSED = [
    ("not a database log", replace(BATCH, source=SourceFacts()), STANDING, False),
    ("the key is not unique", replace(BATCH, source=SourceFacts(unproven="the key is not unique")), STANDING, False),
    ("source_tables", of_target(source_tables=("s.*",)), STANDING, False),
    ("fold_case", of_target(fold_case=True), STANDING, False),
    ("clean.filter", of_target(clean=Cleaning(filter="v > 1")), STANDING, False),
    ("on_truncate is 'mark'", of_target(on_truncate="mark"), STANDING, False),
    ("on_truncate is 'stop'", of_target(on_truncate="stop"), STANDING, False),
    ("have expired", of_commit(floor=BelowFloor("2026")), STANDING, False),
    ("in quarantine", replace(BATCH, rejected=REJECTED), STANDING, False),
    ("others may have added rows", BATCH, replace(STANDING, others=True), False),
    ("there is no full load", BATCH, replace(STANDING, rows_below=None), False),
    ("there is no full load", BATCH, Standing(empty=True), False),
    ("another server", BATCH, replace(STANDING, position=replace(LOADED, identity="two")), False),
    ("another server", BATCH, replace(STANDING, position=replace(LOADED, source="mysql")), False),
    ("the end of the full load", replace(BATCH, full_load=True), STANDING, True),
    ("the end of the full load", replace(BATCH, full_load=True), Standing(empty=True), True),
    ("the end of the full load", replace(BATCH, full_load=True, rejected=REJECTED), Standing(empty=True), True),
    ("there is no full load", replace(BATCH, full_load=True), Standing(), False),
    ("the end of the full load", replace(of_commit(replaces=True), full_load=True), Standing(1, others=True), True),
    ("the end of the full load", BATCH, at(load={"done": 1}), True),
    ("the end of the full load", BATCH, at(loaded="0/12C"), True),
    ("the end of the full load", replace(BATCH, source=replace(BATCH.source, overtaken_below=BELOW)), STANDING, True),
    ("not above the highest order key", of_commit(first_order=BELOW), STANDING, True),
    ("not above the highest order key", of_commit(first_order=None), STANDING, True),
    ("not above the highest order key", BATCH, replace(STANDING, rows_below=order_key(1, 150)), True),
]


@pytest.mark.parametrize(("why", "batch", "standing", "known"), REFUSED)
def test_each_missing_condition_prevents_the_proof(why: str, batch: Batch, standing: Standing, known: bool) -> None:
    assert why in str(refusal_of_proof(standing, batch, AFTER))
    below = rows_below(standing, batch, AFTER)
    assert (below is not None) is known
    # no batch may move earlier rows above the bound
    assert below is None or batch.commit.replaces or below >= (standing.rows_below or "")


def snapshot(number: int, operation: str | None, **summary: str) -> Snapshot:
    entries = {key.replace("_", "-"): value for key, value in summary.items()}
    return Snapshot(number, 0, operation, entries, number - 1 or None, number)


FED = replace(snapshot(1, "append"), summary={names.POSITIONS: LOADED.encode(), names.ROWS_BELOW: BELOW})
ADDED = [
    ("append", {"added-records": "1", "total-records": "2"}, True),
    ("overwrite", {"added-records": "1"}, True),
    ("overwrite", {"added-data-files": "1", "total-records": "2"}, True),
    # the summary does not show whether it added rows
    ("append", {}, True),
    (None, {}, True),
    ("overwrite", {"added-records": "0"}, False),
    ("append", {"total-records": "2"}, False),
    ("overwrite", {"added-delete-files": "1", "total-records": "2"}, False),
    ("replace", {"added-records": "1"}, False),
    ("delete", {"added-delete-files": "1"}, False),
]


@dataclass
class Java:
    """A snapshot as Iceberg shows it."""

    of: Snapshot

    def operation(self) -> str | None:
        return self.of.operation

    def summary(self) -> dict[str, str]:
        return dict(self.of.summary)

    def snapshotId(self) -> int:
        return self.of.id

    def parentId(self) -> int | None:
        return self.of.parent_id


@pytest.mark.parametrize(("operation", "summary", "adds"), ADDED)
def test_snapshots_that_may_add_rows(operation: str | None, summary: dict[str, str], adds: bool) -> None:
    assert may_add_rows(operation, summary) is adds
    later = replace(snapshot(2, operation), summary=summary)
    standing = Standing.of([later, FED], {})
    assert standing == Standing(1, LOADED, BELOW, others=adds)
    # the fence decides as the plan does
    assert KnownRows(1).hold([Java(later), Java(FED)]) is not adds
    root = replace(later, id=1, parent_id=None)
    assert Standing.of([root], {}) == Standing(others=adds, empty=not adds)
    assert KnownRows(None).hold([Java(root)]) is not adds


def test_the_fence_refuses_unknown_rows() -> None:
    empty, rewritten = snapshot(1, "delete"), snapshot(2, "replace")
    assert KnownRows(None).hold([]) and KnownRows(None).hold([Java(empty)])
    # a table loaded meanwhile, one whose first snapshots have expired, one fed by another run
    assert not KnownRows(None).hold([Java(rewritten), Java(FED)])
    assert not KnownRows(None).hold([Java(snapshot(7, "delete"))])
    assert not KnownRows(9).hold([Java(rewritten), Java(FED)])
    assert not KnownRows(1).hold([]) and not KnownRows(1).hold([Java(empty)])
    assert Standing.of([snapshot(7, "delete")], {}) == Standing() and Standing.of([], {}) == Standing(empty=True)


def test_columns_that_ingestion_fills_add_no_rows() -> None:
    filled, foreign = snapshot(2, "overwrite", added_records="9"), snapshot(3, "overwrite", added_records="9")
    properties = {names.FILLED: "2"}
    assert Standing.of([filled, FED], properties) == Standing(1, LOADED, BELOW, filled=2)
    assert KnownRows(1, 2).hold([Java(filled), Java(FED)])
    assert Standing.of([foreign, filled, FED], properties).others
    assert not KnownRows(1, 2).hold([Java(foreign), Java(filled), Java(FED)])


def test_the_idle_position_of_a_quiet_table_counts() -> None:
    quiet = replace(LOADED, offsets={"lsn": "0/96"})
    standing = Standing.of([FED], {names.IDLE_POSITION: encode_idle(1, quiet)})
    assert standing == Standing(1, quiet, BELOW)
    # a job that writes a position but not the bound of the rows ends the proof
    erased = replace(FED, id=2, summary={names.POSITIONS: LOADED.encode()})
    assert Standing.of([erased, FED], {}).rows_below is None
