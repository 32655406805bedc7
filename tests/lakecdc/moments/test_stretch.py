"""Moments of tables with full loads, several partitions of a topic, or a floor."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import functions as F

from lakecdc.ingest import tombstones
from lakecdc.ingest.batch import Batch, CommitPlan
from lakecdc.ingest.change import Rows
from lakecdc.ingest.reconciliation import Compared, drop_stale
from lakecdc.ingest.sources.kafka import progress
from lakecdc.ingest.sources.log.parking import Parked, Parking
from lakecdc.ingest.sources.postgres.reading import Summary
from lakecdc.metadata import names
from lakecdc.metadata.floor import Floor
from lakecdc.metadata.positions import Position
from lakecdc.model.order import order_key
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Loads
from tests.lakecdc.moments.support import restored


def now() -> str:
    return datetime.now(UTC).isoformat()


def read_now(batch: Batch) -> Batch:
    """Return a batch after which its source has been read up to now."""
    return replace(batch, position=replace(batch.position, read_through=now()))


def refusal(lake: Lake, name: str, moment: str) -> str:
    (report,) = restored(lake, name, moment=moment)
    assert report.failure_class == "bad input", report
    return report.reason or ""


def test_moments_before_a_full_load_are_refused(lake: Lake) -> None:
    loads = Loads(lake)
    name = loads.target.table
    loads.feed(read_now(loads.batch(10, {1: "a", 2: "b"})))
    before = now()
    loads.feed(read_now(replace(loads.batch(20, {1: "a2", 3: "c"}), commit=CommitPlan(replaces=True))))
    after = now()
    loads.feed(read_now(loads.batch(30, {3: "c2"}, full_load=False)))
    assert "It was fully reloaded after" in refusal(lake, name, before)
    (report,) = restored(lake, name, moment=after)
    assert report.outcome == "done", report.reason
    assert sorted(lake.duckdb_rows(name, "id, v", report.metrics["branch"])) == [(1, "a2"), (3, "c")]
    floor = Floor(1, "at", datetime.now(UTC) + timedelta(days=1)).encode()
    lake.sql(f"ALTER TABLE lake.{name}_history SET TBLPROPERTIES ('{names.EXPIRED_BELOW}' = '{floor}')")
    assert "have been removed from the history table" in refusal(lake, name, after)


def untimed(batch: Batch, time: str) -> Batch:
    """Return a batch whose events have no source time."""
    assert batch.rows is not None
    return replace(batch, rows=Rows(batch.rows.frame.withColumn("source_time", F.expr(time))))


def test_events_without_a_source_time_prevent_moments_before_their_ingestion(lake: Lake) -> None:
    loads = Loads(lake)
    name = loads.target.table
    loads.feed(untimed(read_now(loads.batch(10, {1: "a", 2: "b"})), "NULL"))
    before = now()
    loads.feed(untimed(read_now(loads.batch(20, {1: "a2", 2: "b2"}, full_load=False)), "timestamp_micros(0)"))
    after = now()
    loads.feed(read_now(loads.batch(30, {1: "a3"}, full_load=False)))
    _, during, first = (each.summary[names.READ_THROUGH] for each in lake.table(name).ancestors())
    for moment in (first, before, during):
        assert f"2 events in its history table {name}_history have no source time" in refusal(lake, name, moment)
    (report,) = restored(lake, name, moment=after)
    assert report.outcome == "done", report.reason
    assert sorted(lake.duckdb_rows(name, "id, v", report.metrics["branch"])) == [(1, "a2"), (2, "b2")]
    # a remembered delete without a time is older than the moment, because otherwise its event would have been refused
    table, deletion, late = lake.table(name), loads.batch(40, {1: ""}), loads.batch(35, {1: "late"})
    assert deletion.rows is not None and late.rows is not None
    nothing = F.lit(None).cast("timestamp")
    tombstones.append_deletes(table, deletion.rows.frame.withColumn("source_time", nothing), ["id"])
    rows = late.rows.frame.withColumn("late", F.lit(True))
    compared = Compared("0050", "0035", rows=False, until=F.current_timestamp())
    assert drop_stale(rows, table, ["id"], compared).frame.isEmpty()


def test_parked_rounds_prevent_their_moments(lake: Lake) -> None:
    loads = Loads(lake)
    name = loads.target.table

    def feed(place: int, value: str, lsn: str) -> None:
        position = Position("postgres", "one", {"lsn": lsn}, now())
        loads.feed(replace(loads.batch(place, {1: value}, full_load=place == 10), position=position))

    feed(10, "a", "0/5")
    between, parked = now(), Parked(9, datetime.now(UTC), "one", 7, Summary(end_lsn=9).to_json(), {"lsn": "0/9"}, 0)
    Parking(lake.spark, "lake").park(name, parked, None)
    assert "and 1 rounds of its log are parked." in refusal(lake, name, now())
    feed(20, "b", "0/9")
    # applied, but not yet removed
    assert "parked" not in refusal(lake, name, "2030-01-01T00:00:00Z")
    (report,) = restored(lake, name, moment=between)
    assert report.outcome == "done", report.reason
    assert lake.duckdb_rows(name, "id, v", report.metrics["branch"]) == [(1, "a")]


def test_each_partition_of_a_topic_needs_a_later_event(lake: Lake) -> None:
    loads = Loads(lake)
    name = loads.target.table

    def feed(place: int, value: str, *times: datetime) -> None:
        marks = {
            ("t", partition): order_key(1, place, time=int(t.timestamp() * 1000)) for partition, t in enumerate(times)
        }
        topics = {"t": progress.Followed("topic", (place,) * len(times))}
        offsets = progress.encode(progress.Progress(1, topics, marks))
        position = Position(progress.SOURCE, "topic", offsets, max(times).isoformat())
        loads.feed(replace(loads.batch(place, {1: value}, full_load=place == 1), position=position))

    begun = datetime.now(UTC)
    feed(1, "a", begun, begun)
    moment = datetime.now(UTC)
    later = moment + timedelta(hours=1)
    feed(2, "b", later, begun)
    assert "no later event arrived from t/1" in refusal(lake, name, moment.isoformat())
    feed(3, "c", later, later)
    (report,) = restored(lake, name, moment=moment.isoformat())
    assert report.outcome == "done", report.reason
    assert lake.duckdb_rows(name, "id, v", report.metrics["branch"]) == [(1, "a")]
