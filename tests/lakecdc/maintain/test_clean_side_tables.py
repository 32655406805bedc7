"""Rows of side tables are removed once they are not needed; rows that stay are reported with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from lakecdc.contract.errors import SpecError, UnsupportedError
from lakecdc.contract.spec import parse_spec
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.explain import is_conflict
from lakecdc.iceberg.refs import read_refs
from lakecdc.iceberg.staging import stage_rows
from lakecdc.ingest import quarantine, tombstones
from lakecdc.ingest.sources.log.parking import Parked, Parking, settled_rounds
from lakecdc.ingest.sources.postgres.reading import Summary
from lakecdc.maintain.side_tables import clean_side_tables
from lakecdc.metadata.names import DELETES_SUFFIX, FILES_SUFFIX, PARKED
from lakecdc.metadata.policy import ALLOW
from lakecdc.metadata.positions import Position
from lakecdc.model.order import order_key
from lakecdc.model.positions import lsn_text
from tests.conftest import Lake
from tests.lakecdc.maintain.support import _fence, create, head, meanwhile, run

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SEEN = "2026-01-02T00:00:00+00:00"


def position_at(
    lsn: str, *, identity: str = "a", source: str = "postgres", high: str | None = None, read: str | None = None
) -> Position:
    return Position(source, identity, {"lsn": lsn, "epoch": 1}, read, high)


def a_round(through: int, identity: str = "a", moment: datetime = NOON) -> Parked:
    return Parked(through, moment, identity, 7, Summary(end_lsn=through).to_json(), {"lsn": lsn_text(through)}, 0)


@pytest.mark.parametrize(
    ("position", "settled"),
    [
        (None, []),
        (Position("kafka", "a"), []),
        (position_at("0/1"), []),
        (position_at("0/2"), [2]),
        (position_at("0/3"), [2, 3]),
        # a full load from another cluster, later than the state of the former one
        (position_at("0/1", identity="b", read=(NOON + timedelta(seconds=1)).isoformat()), [2, 3]),
        # rolled back to a position of a former cluster: rolled forward again, it needs them
        (position_at("0/9", identity="b", read=(NOON - timedelta(days=1)).isoformat()), []),
        (position_at("0/9", identity="b"), []),
    ],
)
def test_rounds_are_removed_once_they_are_applied_or_void(position: Position | None, settled: list[int]) -> None:
    assert [p.through for p in settled_rounds([a_round(2), a_round(3)], position)] == settled


def test_a_needed_round_keeps_another_clusters_round_with_the_same_end() -> None:
    parked = [a_round(2, "a"), a_round(5, "a"), a_round(5, "b", NOON + timedelta(days=9))]
    assert settled_rounds(parked, position_at("0/5", identity="a", read=NOON.isoformat())) == parked[:1]


K = "kafka"


@pytest.mark.parametrize(
    ("position", "before", "oldest"),
    [
        (None, [], None),
        # a log continues above its applied position, whatever came before
        (position_at("0/5", high="0001f"), [position_at("0/1", high="0001a")], "0001f"),
        (position_at("0/5"), [], order_key(1, 0)),
        # topics may send any event of their epoch
        (Position(K, "t", {"epoch": 2}, None, "0002f"), [], order_key(2, 0)),
        # events before a TRUNCATE are void
        (Position(K, "t", {"epoch": 2}, None, "0002f", "0002b"), [], "0002b"),
        # unless the topic is read again from before the TRUNCATE
        (Position(K, "t", {"epoch": 2}, truncate_order="0002b"), [Position(K, "t", {"epoch": 1})], order_key(1, 0)),
    ],
)
def test_the_oldest_possible_event_depends_on_the_source(
    position: Position | None, before: Sequence[Position], oldest: str | None
) -> None:
    assert tombstones.oldest_order_to_come(position, before) == oldest


def dismissal(**rest: Any) -> dict[str, Any]:
    return {"table": "a.b", "seen_before": SEEN, "because": "test data", **rest}


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ({"because": " "}, "no reason"),
        ({"seen_before": "yesterday"}, "not an ISO-8601 time"),
        ({"rule": "x"}, "'rules'"),
    ],
)
def test_a_dismissal_names_messages_and_reason(lake: Lake, rest: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_spec(lake.spec("clean_side_tables", "a.b", options={"dismiss": [dismissal(**rest)]}))


class Beside:
    """A target with a position, and its side tables."""

    def __init__(self, lake: Lake, position: Position) -> None:
        self.lake, self.position = lake, position
        self.name, self.quarantine = create(lake, 3), lake.new_name("quarantine")
        self.commit_position(position)
        self.namespace = self.name.rpartition(".")[0]

    def commit_position(self, position: Position) -> None:
        table = self.lake.table(self.name)
        rows = self.lake.sql("SELECT 1L AS id, 'v' AS v, 1 AS d")
        changes = RowChanges(stage_rows(table, rows), summary={"lakecdc.positions": position.encode()})
        append_changes(table, changes, _fence(table))

    def park(self, *rounds: Parked, target: str = "") -> None:
        parked = f"{self.namespace}.{PARKED}"
        if not self.lake.spark.catalog.tableExists(f"lake.{parked}"):
            Parking(self.lake.spark, "lake")._create(parked)
        rows = []
        for one in rounds:
            key = f"'{target or self.name}', {one.through}"
            rows += [f"({key}, 'c', null)", f"({key}, 'end', {msgspec.json.encode(one).decode()!r})"]
        self.lake.sql(f"INSERT INTO lake.{parked} (target, through, kind, summary) VALUES {', '.join(rows)}")

    def keep(self, target: str, *messages: tuple[str, str, str | None]) -> None:
        """Quarantine messages, given by rule, day of first sight and order key."""
        quarantine.create_quarantine(self.lake.spark, "lake", self.quarantine)
        rows = []
        for number, (rule, seen, order) in enumerate(messages):
            known = f"'{order}'" if order else "CAST(null AS string)"
            moment = f"timestamp'{seen} 00:00:00 UTC'"
            rows.append(f"('{target}', 't {number} {rule}', '{rule}', 'no', {moment}, {known})")
        columns = "target, place, rule, reason, first_seen, order_key"
        self.lake.sql(f"INSERT INTO lake.{self.quarantine} ({columns}) VALUES {', '.join(rows)}")

    def remember(self, *orders: str) -> None:
        if not self.lake.spark.catalog.tableExists(f"lake.{self.name}{DELETES_SUFFIX}"):
            tombstones._open_or_create(self.lake.table(self.name), ["id"])
        rows = ", ".join(f"(1, '{order}', null)" for order in orders)
        self.lake.sql(f"INSERT INTO lake.{self.name}{DELETES_SUFFIX} VALUES {rows}")

    def remembered(self) -> list[str]:
        return sorted(row[1] for row in self.lake.duckdb_rows(self.name + DELETES_SUFFIX))

    def clean(self, **options: Any) -> Any:
        return run(self.lake, clean_side_tables, self.name, quarantine_table=self.quarantine, **options)


def test_unneeded_rows_are_removed_and_the_rest_is_reported(lake: Lake) -> None:
    low, high, next_ = order_key(1, 1), order_key(1, 5), order_key(1, 6)
    beside = Beside(lake, position_at("0/5", high=high))
    beside.park(a_round(5), a_round(6))
    of_mine = ("type", "2026-01-01", next_), ("type", "2026-01-03", next_), ("no-key", "2026-01-01", high)
    beside.keep(beside.name, *of_mine)
    beside.keep("else.where", ("type", "2026-01-01", None))
    beside.remember(low, high, next_)
    chapter = "'c' AS chapter, '' AS previous, 'f' AS file, '' AS instead"
    lake.sql(f"CREATE TABLE lake.{beside.name}{FILES_SUFFIX} AS SELECT {chapter}")
    dismiss = [dismissal(table=beside.name, rules=["type"]), dismissal(table="else.where")]
    target_head = head(lake, beside.name)

    expected = {
        **{"parked_rounds_before": 2, "parked_rounds_removed": 1, "parked_rounds_after": 1},
        **{"quarantined_before": 3, "quarantined_dismissed": 1, "quarantined_after": 2},
        **{"remembered_deletes_before": 3, "remembered_deletes_removed": 1, "remembered_deletes_after": 2},
        **{"files_read_before": 1, "files_read_removed": 0, "files_read_after": 1},
        **{"dismissals": [{**dismiss[0], "rules": ("type",), "messages": 1}]},
    }
    dry = beside.clean(dismiss=dismiss, dry_run=True)
    assert dry.outcome == "nothing" and dry.metrics.items() >= expected.items()
    assert len(beside.remembered()) == 3

    report = beside.clean(dismiss=dismiss)
    assert report.outcome == "done" and report.metrics.items() >= expected.items()
    stay = {"parked_rounds", "quarantined", "remembered_deletes", "files_read", "missing_targets"}
    assert set(report.metrics["kept_because"]) == stay
    assert head(lake, beside.name) == target_head
    # not read by the engine that deleted
    mine = lake.duckdb_rows(f"{beside.namespace}.{PARKED}", "target, through, kind")
    assert sorted(row[1:] for row in mine if row[0] == beside.name) == [(6, "c"), (6, "end")]
    messages = lake.duckdb_rows(beside.quarantine, "target, rule, first_seen")
    assert sorted((target, rule, seen.day) for target, rule, seen in messages) == sorted(
        [(beside.name, "type", 3), (beside.name, "no-key", 1), ("else.where", "type", 1)]
    )
    # the delete newer than the oldest quarantined message stays, and the one that the log has not reached
    assert beside.remembered() == [high, next_]
    again = beside.clean(dismiss=dismiss)
    assert (again.outcome, again.reason) == ("nothing", "nothing beside it can be removed")


def test_deletes_stay_while_a_message_may_be_older_or_ingestion_runs(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    low, high = order_key(1, 1), order_key(1, 5)
    beside = Beside(lake, position_at("0/5", high=high))
    beside.remember(low)
    beside.keep(beside.name, ("not-json", "2026-01-01", None))
    # a running replay may still apply messages that are dismissed now
    report = beside.clean(dismiss=[dismissal(table=beside.name)])
    assert (report.metrics["remembered_deletes_removed"], report.metrics["quarantined_dismissed"]) == (0, 1)

    def ingestion() -> None:
        beside.keep(beside.name, ("type", "2026-01-09", order_key(1, 0)))
        beside.remember(order_key(1, 2))

    with monkeypatch.context() as patch:
        meanwhile(patch, "before_side_table_delete", ingestion)
        report = beside.clean()
    assert (report.outcome, report.metrics["remembered_deletes_removed"]) == ("nothing", 0), report.reason
    assert beside.remembered() == [low, order_key(1, 2)]
    assert set(read_refs(lake.table(beside.name + DELETES_SUFFIX))) == {"main"}, "no branch is left behind"
    lake.sql(f"DELETE FROM lake.{beside.quarantine}")
    assert beside.clean().metrics["remembered_deletes_removed"] == 2
    assert beside.remembered() == []


def test_rows_of_dropped_targets_wait_for_forget_tables(lake: Lake) -> None:
    beside, other = Beside(lake, position_at("0/5")), create(lake, 2)
    dropped, never = f"{beside.namespace}.gone", f"{beside.namespace}.never_made"
    for target in (beside.name, other, dropped, never):
        beside.keep(target, ("type", "2026-01-01", None), ("type", "2026-01-02", None))
    beside.park(a_round(7), a_round(8), target=dropped)

    def missing(report: Any) -> list[dict[str, Any]]:
        # other tests share the tables of parked rounds
        return [row for row in report.metrics.get("missing_targets", []) if row["table"] in (dropped, never)]

    def clean(name: str, **options: Any) -> Any:
        document = lake.spec(
            "clean_side_tables", beside.name, other, options={"quarantine_table": beside.quarantine, **options}
        )
        return clean_side_tables(lake.table(name), parse_spec(document))

    expected = [
        {"table": dropped, "forgotten": False, "quarantined": 2, "parked_rounds": 2},
        {"table": never, "forgotten": False, "quarantined": 2},
    ]
    first, second = clean(beside.name), clean(other)
    assert missing(first) == expected and "missing_targets" in first.metrics["kept_because"]
    assert missing(second) == [], "missing targets are reported once"
    expected[0]["forgotten"] = True
    assert missing(clean(beside.name, forget_tables=[dropped], dry_run=True)) == expected
    first = clean(beside.name, forget_tables=[dropped])
    assert (first.outcome, missing(first), second.outcome) == ("done", expected, "nothing")
    assert {row[0] for row in lake.duckdb_rows(beside.quarantine, "target")} == {beside.name, other, never}
    assert dropped not in {row[0] for row in lake.duckdb_rows(f"{beside.namespace}.{PARKED}", "target")}
    assert missing(clean(beside.name, forget_tables=[dropped])) == expected[1:]


def test_wrong_options_are_refused(lake: Lake) -> None:
    name = create(lake, 2)
    with pytest.raises(SpecError, match="Cannot forget the table"):
        run(lake, clean_side_tables, name, forget_tables=[f"{name}_not_there", name])
    future = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    with pytest.raises(SpecError, match="in the future"):
        run(lake, clean_side_tables, name, dismiss=[dismissal(table=name, seen_before=future)])
    with pytest.raises(UnsupportedError, match="own tables"):
        tombstones._open_or_create(lake.table(name), ["id"])
        run(lake, clean_side_tables, name + DELETES_SUFFIX)
    lake.table(name + DELETES_SUFFIX).update_properties({ALLOW: "compact_data_files"})
    refused = run(lake, clean_side_tables, name)
    assert refused.outcome == "unsupported" and ALLOW in str(refused.reason) and DELETES_SUFFIX in str(refused.reason)


class Thrown:
    """A Java exception as py4j returns it."""

    def __init__(self, name: str, cause: Thrown | None = None) -> None:
        self._name, self._cause = name, cause

    def getClass(self) -> Thrown:
        return self

    def getSimpleName(self) -> str:
        return self._name

    def getCause(self) -> Thrown | None:
        return self._cause


@pytest.mark.parametrize(
    ("thrown", "lost"),
    [
        (Thrown("ValidationException"), True),
        # as Spark wraps the exception of a DELETE's commit
        (Thrown("SparkException", Thrown("CommitFailedException")), True),
        (Thrown("SparkException", Thrown("IOException")), False),
    ],
)
def test_conflicts_are_distinguished_from_other_failures(thrown: Thrown, lost: bool) -> None:
    error = RuntimeError("of Spark's")
    error._origin = thrown  # type: ignore[attr-defined]
    assert is_conflict(error) is lost
    assert not is_conflict(RuntimeError("of Python's"))
