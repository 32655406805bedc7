"""A wide row fed by several jobs, each with its own source and position; read by DuckDB."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.errors import ConflictError, InputError, SpecError
from lakecdc.contract.feeding import IngestOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.contract.target import parse_targets
from lakecdc.erase.job import erase_rows
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Column
from lakecdc.ingest.table_run import TableRun
from lakecdc.ingest.tables import prepare
from lakecdc.maintain.rollback import state_beside
from lakecdc.metadata import names
from lakecdc.metadata.positions import Position
from lakecdc.runtime import failpoints
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed
from tests.lakecdc.ingest.histories import PLACEHOLDER
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.merging.test_ingest import Log
from tests.lakecdc.maintain.support import meanwhile
from tests.lakecdc.maintain.support import run as run_job
from tests.lakecdc.moments.support import iso, restored

_COLUMNS = "id, name, mail, city"
_GROUPS = [
    {"columns": ["name", "mail"], "source_table": "shop.person"},
    {"columns": ["city"], "source_table": "shop.address"},
]
Row = tuple[Any, ...]


class Wide:
    """Two jobs with separate sources that feed one table."""

    def __init__(self, lake: Lake, folder: Path, **target: Any) -> None:
        self.lake, self.table = lake, lake.new_name("wide")
        self.log = Log()
        # the first job has no name: it was once alone
        self.people = self._feed(folder / "people", "", ".*", target)
        self.places = self._feed(folder / "places", "places", "address", target)

    def _feed(self, folder: Path, feed: str, source_table: str, target: dict[str, Any]) -> Feed:
        folder.mkdir()
        settings = {"merge": {"groups": _GROUPS}, "source_tables": [f"shop\\.{source_table}"]}
        options = {"quarantine_table": f"{{namespace}}.{feed or 'people'}_quarantine"}
        return Feed(self.lake, folder, {**settings, "feed": feed, **target}, self.table, options=options)

    def person(self, key: int, name: str, op: str = "u") -> dict[str, Any]:
        return self.log.event("person", op, {"id": key, "name": name, "mail": f"{name}@x"})

    def address(self, key: int, city: str, op: str = "u") -> dict[str, Any]:
        return self.log.event("address", op, {"id": key, "city": city})

    def truncate(self, table: str) -> dict[str, Any]:
        event = self.log.event(table, "t", {"id": 0})
        event["key"] = event["value"]["after"] = None
        return event

    @property
    def rows(self) -> list[Row]:
        return self.people.rows(columns=_COLUMNS)


@pytest.fixture
def wide(lake: Lake, tmp_path: Path) -> Wide:
    return Wide(lake, tmp_path)


def test_each_job_continues_from_its_own_position(wide: Wide) -> None:
    late = wide.address(1, "Rome")
    first = wide.people.take([wide.person(1, "Ada")])
    wide.places.take([wide.address(1, "Bonn"), wide.address(2, "Nice")])
    assert wide.rows == [(1, "Ada", "Ada@x", "Bonn"), (2, None, None, "Nice")]
    again = wide.people.run()
    assert (again.outcome, again.metrics["position"]) == ("nothing", first.metrics["position"])
    # each job reads only its new file
    assert wide.places.take([late, wide.address(2, "", "d")]).metrics["files_read"] == 1
    assert wide.people.take([wide.person(1, "Eve")]).metrics["files_read"] == 1
    assert wide.rows == [(1, "Eve", "Eve@x", "Bonn")]
    wide.people.take([wide.person(1, "", "d")])
    wide.places.take([wide.address(1, "", "d")])
    assert wide.rows == []
    # the order of a deleted group is remembered for the job whose events come late
    wide.places.take([late])
    assert wide.rows == []


def test_the_table_is_as_fresh_as_the_job_furthest_behind(wide: Wide) -> None:
    old = wide.people.take([wide.person(1, "Ada")])
    wide.places.take([wide.address(1, "Bonn")])
    table = wide.lake.table(wide.table)
    head = table.head()
    assert head is not None and head.summary[names.READ_THROUGH] == old.metrics["read_through"]


@pytest.mark.parametrize("mode", ["upsert", "merge"])
def test_jobs_that_commit_at_the_same_time_both_count(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    wide = Wide(lake, tmp_path, mode=mode)
    wide.people.take([wide.person(1, "Ada")])
    wide.places.write([wide.address(1, "Bonn")])
    reports: list[TableReport] = []

    def other() -> None:
        reports.append(wide.people.take([wide.person(1, "Eve"), wide.person(2, "Bob")]))

    meanwhile(monkeypatch, "before_staging", other)
    monkeypatch.setattr("lakecdc.ingest.apply.merge.reach", failpoints.reach)
    reports.append(wide.places.run())
    assert [report.outcome for report in reports] == ["done", "done"]
    assert wide.rows == [(1, "Eve", "Eve@x", "Bonn"), (2, "Bob", "Bob@x", None)]
    assert [feed.run().outcome for feed in (wide.people, wide.places)] == ["nothing", "nothing"]


def test_a_job_with_repeated_conflicts_stops_without_losing_events(wide: Wide, monkeypatch: pytest.MonkeyPatch) -> None:
    wide.people.take([wide.person(1, "Ada")])
    wide.places.write([wide.address(1, "Bonn")])
    reach, busy = failpoints.reach, [False]

    def always(name: str) -> None:
        reach(name)
        if name == "before_commit" and not busy[0]:
            busy[0] = True
            wide.people.take([wide.person(1, "Eve")])
            busy[0] = False

    with monkeypatch.context() as during:
        during.setattr(failpoints, "reach", always)
        report = wide.places.run()
    assert (report.outcome, report.failure_class) == ("conflict", ConflictError.failure_class)
    assert wide.people.files == 4
    wide.places.run()
    assert wide.rows == [(1, "Eve", "Eve@x", "Bonn")]


def let_reload(monkeypatch: pytest.MonkeyPatch, feed: Feed) -> None:
    """Let a job reload its table, which only database sources may."""
    own = feed.options["quarantine_table"]
    monkeypatch.setattr(IngestOptions, "reloads", lambda options, _: options.quarantine_table == own)


def test_a_reload_never_removes_rows_of_another_job(wide: Wide, monkeypatch: pytest.MonkeyPatch) -> None:
    wide.people.take([wide.person(1, "Ada")])
    wide.places.write([wide.address(1, "Bonn"), wide.address(2, "Nice")])
    let_reload(monkeypatch, wide.people)
    assert wide.people.run().outcome == "done", "the only job may reload"
    with monkeypatch.context() as during:
        meanwhile(during, "before_commit", wide.places.run)
        assert wide.people.run().outcome == "conflict"
    assert wide.rows == [(1, "Ada", "Ada@x", "Bonn"), (2, None, None, "Nice")]
    assert "rows of the other jobs" in str(wide.people.run().reason)


def test_a_job_with_a_feed_reloads_while_it_is_alone(wide: Wide, monkeypatch: pytest.MonkeyPatch) -> None:
    wide.places.take([wide.address(1, "Bonn"), wide.address(2, "Nice"), wide.address(2, "", "d")])
    wide.lake.spark.sql(f"UPDATE lake.{wide.table} SET city = 'by hand'")
    let_reload(monkeypatch, wide.places)
    assert wide.places.run().outcome == "done"
    assert wide.places.rows(columns="id, city") == [(1, "Bonn")]


def test_a_full_load_is_merged_after_a_conflicting_first_commit(wide: Wide, monkeypatch: pytest.MonkeyPatch) -> None:
    wide.people.write([wide.person(1, "Ada")])
    wide.places.write([wide.address(1, "Bonn"), wide.address(2, "Nice")])
    apply = TableRun.apply

    def load(run: TableRun, batch: Batch) -> None:
        is_load = run.feed.target.feed == ""
        apply(run, replace(batch, full_load=True, source=replace(batch.source, in_order=True)) if is_load else batch)

    monkeypatch.setattr(TableRun, "apply", load)
    meanwhile(monkeypatch, "before_commit", wide.places.run)
    assert wide.people.run().outcome == "done"
    assert wide.rows == [(1, "Ada", "Ada@x", "Bonn"), (2, None, None, "Nice")]


def test_only_one_job_writes_a_history_table(lake: Lake, tmp_path: Path) -> None:
    wide = Wide(lake, tmp_path, history_table=f"{lake.new_name('wide')}_history")
    for city in ("Bonn", "Rome"):
        wide.places.take([wide.address(1, city)])
    wide.people.write([wide.person(1, "Ada")])
    report = wide.people.run()
    assert "another of its feeds writes to it" in str(report.reason)
    assert wide.places.rows(columns="id, city") == [(1, "Rome")]
    log = wide.places.rows(wide.places.target["history_table"], "_lakecdc_op, city")
    assert log == [("u", "Bonn"), ("u", "Rome")]
    # the history has no batch of the other job
    del wide.people.target["history_table"]
    assert wide.people.run().outcome == "done"
    lineage = list(lake.table(wide.table).ancestors())
    history = lake.table(wide.places.target["history_table"])
    assert state_beside(history, lake.table(wide.table), lineage) == history.head()


def test_a_feed_that_is_renamed_is_refused(wide: Wide) -> None:
    del wide.places.target["source_tables"]
    wide.places.target["source_table"] = "shop.address"
    wide.places.take([wide.address(1, "Bonn")])
    wide.places.target["feed"] = "towns"
    report = wide.places.run()
    assert "already feeds the table with feed 'places'" in str(report.reason)


def test_a_default_of_a_new_column_fills_the_rows_of_its_source(wide: Wide) -> None:
    wide.people.take([wide.log.event("person", "c", {"id": 1, "name": "Ada"})])
    wide.places.take([wide.address(2, "Bonn")])
    (target,) = parse_spec(wide.people.spec).targets
    columns = (Column("id", "bigint", True), Column("name", "string"), Column("mail", "string", fill="none"))
    batch = Batch(target, ("id",), columns, None, Position("files", "f"))
    prepare(wide.lake.spark, "lake", wide.lake.table(wide.table), batch)
    assert wide.rows == [(1, "Ada", "none", None), (2, None, None, "Bonn")]


def test_a_foreign_update_between_lookup_and_commit_is_kept(wide: Wide, monkeypatch: pytest.MonkeyPatch) -> None:
    wide.people.take([wide.person(1, "Ada")])
    wide.places.write([wide.address(1, "Bonn")])
    update = f"UPDATE lake.{wide.table} SET mail = 'by hand' WHERE id = 1"
    meanwhile(monkeypatch, "before_staging", lambda: wide.lake.spark.sql(update))
    assert wide.places.run().outcome == "done"
    assert wide.rows == [(1, "Ada", "by hand", "Bonn")]


def test_random_histories_survive_repeats_and_kills(wide: Wide, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(38)
    state: dict[str, dict[int, str]] = {"person": {}, "address": {}}
    events_of: dict[str, list[dict[str, Any]]] = {"person": [], "address": []}
    for number in range(60):
        table, key = rng.choice(["person", "address"]), rng.randrange(6)
        deleted = key in state[table] and rng.random() < 0.3
        make = wide.person if table == "person" else wide.address
        events_of[table].append(make(key, f"v{number}", "d" if deleted else "u"))
        if deleted:
            del state[table][key]
        else:
            state[table][key] = f"v{number}"
    feeds = {"person": wide.people, "address": wide.places}
    for table, moment in (("person", ""), ("address", "after_staging"), ("person", "after_commit"), ("address", "")):
        events, feed = events_of[table], feeds[table]
        some = events[:15] if feed.files == 0 else events[10:]
        feed.write(rng.sample(some, len(some)))
        if moment:
            act_at(monkeypatch, f"{moment}=raise")
            assert feed.run().outcome == "failed"
            act_at(monkeypatch, "")
    for feed in (*feeds.values(), *feeds.values()):
        feed.run()
    keys = sorted({*state["person"], *state["address"]})
    people, places = state["person"], state["address"]
    mails = {key: f"{name}@x" for key, name in people.items()}
    assert wide.rows == [(k, people.get(k), mails.get(k), places.get(k)) for k in keys]


def test_erased_rows_stay_away_whichever_job_feeds_them(wide: Wide) -> None:
    history, keys = f"{wide.table}_history", f"{wide.table}_keys"
    wide.places.target["history_table"] = history
    # no part of an order key
    late = [wide.address(7, "Rome"), wide.person(7, "Eve")]
    wide.places.take([wide.address(7, "Bonn"), wide.address(2, "Nice")])
    # above all that this job has read, below what the other one has
    new = wide.address(7, "Oslo")
    wide.people.take([wide.person(7, "Ada"), wide.person(2, "Bob")])
    wide.lake.sql(f"CREATE TABLE lake.{keys} USING iceberg AS SELECT 7L AS id")
    options = {"keys_table": keys, "history_tables": {wide.table: history}}
    assert run_job(wide.lake, erase_rows, wide.table, **options).outcome == "done"
    assert wide.places.rows(history, "id, city") == [(2, "Nice")]
    assert [feed.run().outcome for feed in (wide.people, wide.places)] == ["nothing", "nothing"]
    wide.places.take([late[0], wide.address(3, "Bern")])
    wide.people.take([late[1]])
    assert wide.rows == [(2, "Bob", "Bob@x", "Nice"), (3, None, None, "Bern")]
    wide.places.take([new])
    assert wide.rows[-1] == (7, None, None, "Oslo"), "the source has the row again"
    wide.places.options["max_quarantined_fraction"] = 1.0
    wide.places.take([wide.address(4, PLACEHOLDER)])
    with pytest.raises(InputError, match="messages in quarantine"):
        run_job(wide.lake, erase_rows, wide.table, **options, quarantine_table="{namespace}.places_quarantine")


def test_a_truncate_empties_the_groups_of_its_source_table(wide: Wide) -> None:
    del wide.places.target["source_tables"]
    wide.places.target["source_table"] = "shop.address"
    late = wide.address(4, "Lyon")
    wide.places.take([wide.address(1, "Bonn"), wide.address(2, "Nice")])
    wide.people.take([wide.person(1, "Ada")])
    before = wide.address(5, "Kiel")
    wide.places.take([before, wide.truncate("address"), wide.address(3, "Oslo")])
    assert wide.rows == [(1, "Ada", "Ada@x", None), (3, None, None, "Oslo")]
    wide.places.take([late])
    wide.people.take([wide.person(2, "Bob"), wide.person(1, "", "d")])
    assert wide.rows == [(2, "Bob", "Bob@x", None), (3, None, None, "Oslo")]
    wide.places.take([wide.truncate("address")])
    assert wide.rows == [(2, "Bob", "Bob@x", None)]
    # several tables feed this job
    wide.people.write([wide.truncate("person")])
    assert "remove the rows of the others" in str(wide.people.run().reason)
    # a read without a position would lose to the emptied group
    read = wide.address(2, "Rome", "r")
    for name in ("lsn", "sequence"):
        del read["value"]["source"][name]
    wide.places.write([read])
    assert "without a position in the log" in str(wide.places.run().reason)
    assert wide.rows == [(2, "Bob", "Bob@x", None)]


def test_jobs_and_columns_for_one_source_are_refused(wide: Wide) -> None:
    wide.people.take([wide.person(1, "Ada")])
    wide.places.take([wide.address(1, "Bonn")])
    assert "Several jobs feed it" in str(restored(wide.lake, wide.table, moment=iso(1_700_000_000_000))[0].reason)
    wide.places.write([wide.log.event("address", "c", {"id": 1, "city": "Rome", "street": "x"})])
    assert "street are in no group" in str(wide.places.run().reason)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"feed": "A b"}, "lower-case letters"),
        ({"merge": None}, "merge has no groups"),
        ({"merge": {"groups": [{"columns": ["a"], "sequence": "v"}]}}, "what other jobs feed"),
        ({"source_table": "shop.other"}, "of no group"),
    ],
)
def test_mistakes_are_refused_when_the_dag_is_parsed(target: dict[str, Any], message: str) -> None:
    known = {"table": "shop.t", "key": ["id"], "merge": {"groups": _GROUPS}, "feed": "crm"}
    with pytest.raises(SpecError) as error:
        parse_targets(known | {"source_table": "shop.person"} | target)
    assert message in f"{error.value} {error.value.hint}"


def test_messages_of_several_sources_do_not_share_a_quarantine(lake: Lake, tmp_path: Path) -> None:
    wide = Wide(lake, tmp_path)
    wide.places.options = {}
    with pytest.raises(SpecError, match="quarantine_table"):
        parse_spec(wide.places.spec)
