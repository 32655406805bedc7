"""Events of real topics become tables that equal the source, with any partitions, batches and repetitions."""

from __future__ import annotations

import json
import random
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest as ingest_job
from lakecdc.runtime.run import run
from tests.lakecdc.ingest.histories import History
from tests.lakecdc.ingest.sources.kafka.conftest import Topics

pytestmark = pytest.mark.services


def only(reports: list[TableReport]) -> TableReport:
    """Return the only table's report, which must be done."""
    (report,) = reports
    assert report.outcome == "done", report.reason
    return report


def refused(reports: list[TableReport]) -> str:
    """Return why the only table was refused as bad input."""
    (report,) = reports
    assert (report.outcome, report.failure_class) == ("failed", "bad input"), report
    return report.reason or ""


def position(report: TableReport) -> dict[str, Any]:
    """Return the offsets in the report."""
    offsets: dict[str, Any] = report.metrics["position"]
    return offsets


def test_partitions_are_read_in_several_batches_and_runs(topics: Topics) -> None:
    name, topic, history = topics.lake.new_name("kafka"), topics.topic(), History.of(1, 40)
    target = {"table": name, "key": ["id"], "partition_by": ["bucket(2, id)"]}
    topics.create(topic, 3)
    half = len(history.events) // 2
    topics.produce(topic, history.events[:half], 3)
    first = only(topics.ingest(target, topics=[topic], max_offsets_per_batch=15))
    assert first.metrics["commits"] > 1 and first.metrics["offsets_left"] == 0
    topics.produce(topic, history.events[half:], 3)
    only(topics.ingest(target, topics=[topic]))
    assert topics.rows(name) == history.expected()
    (again,) = topics.ingest(target, topics=[topic])
    assert again.outcome == "nothing"


@pytest.mark.soak
def test_bytes_bound_a_batch(topics: Topics) -> None:
    name, topic, history = topics.lake.new_name("kafka"), topics.topic(), History.of(3, 12)
    topics.create(topic)
    topics.produce(topic, history.events)
    size = len(json.dumps(history.events[0]["value"]))
    report = only(topics.ingest({"table": name, "key": ["id"]}, topics=[topic], max_batch_bytes=6 * size))
    assert report.metrics["commits"] > 1
    assert topics.rows(name) == history.expected()


def test_replayed_and_shuffled_events_change_nothing(topics: Topics) -> None:
    name, topic, history = topics.lake.new_name("kafka"), topics.topic(), History.of(7, 50)
    target = {"table": name, "key": ["id"]}
    topics.create(topic, 2)
    topics.produce(topic, history.events, 2)
    only(topics.ingest(target, topics=[topic]))
    # a connector sends events again after a crash; the placeholders of key changes need their own order
    again = [e for e in history.events if not e["headers"]]
    random.Random(1).shuffle(again)
    topics.produce(topic, again, 2)
    report = only(topics.ingest(target, topics=[topic]))
    assert report.metrics["suspects"] > 0
    assert topics.rows(name) == history.expected()


def test_in_order_batch_reads_no_data_file(topics: Topics) -> None:
    """One partition lags: its events lie below the table's highest order key, but above their partition's mark."""
    name, topic, history = topics.lake.new_name("kafka"), topics.topic(), History(random.Random(2))
    target = {"table": name, "key": ["id"]}
    topics.create(topic, 2)
    for key in range(8):
        history.insert(key)
    topics.produce(topic, history.events, 2)
    only(topics.ingest(target, topics=[topic]))
    first = len(history.events)
    for key in range(8):
        history.update(key, touch_doc=True)
    updates = history.events[first:]
    ahead = partition_of(updates[-1])
    lagging = [e for e in updates if partition_of(e) != ahead]
    assert lagging
    topics.produce(topic, [e for e in updates if partition_of(e) == ahead], 2)
    only(topics.ingest(target, topics=[topic]))
    topics.produce(topic, lagging, 2)
    data = Path(topics.lake.table(name).location.removeprefix("file:")) / "data"
    hidden = {path: path.with_suffix(".hidden") for path in data.rglob("*.parquet")}
    for path, away in hidden.items():
        path.rename(away)
    report = only(topics.ingest(target, topics=[topic]))
    assert report.metrics["order_by_partition"] == "yes"
    for path, away in hidden.items():
        away.rename(path)
    assert topics.rows(name) == history.expected()


def partition_of(event: dict[str, Any]) -> int:
    """Return the partition, of two, in which ``Topics.produce`` puts an event."""
    return zlib.crc32(json.dumps(event["key"]).encode()) % 2


def of_table(history: History, table: str) -> list[dict[str, Any]]:
    """Return the events of a history as those of another table."""
    source = {"table": table}
    return [{**e, "value": {**e["value"], "source": {**e["value"]["source"], **source}}} for e in history.events]


def test_new_topics_are_read_from_their_beginning(topics: Topics) -> None:
    one, two = topics.lake.new_name("kafka"), topics.lake.new_name("kafka")
    stems = [name.rpartition(".")[2] for name in (one, two)]
    targets = [{"table": name, "key": ["id"]} for name in (one, two)]
    pattern = rf"pg{topics.number}\..*"
    history = History.of(11, 10)
    topics.create(topics.topic(stems[0]))
    topics.create(topics.topic("transaction"))
    topics.produce(topics.topic(stems[0]), of_table(history, stems[0]))
    reports = topics.ingest(targets, topic_pattern=pattern)
    assert [r.outcome for r in reports] == ["done", "nothing"], reports
    topics.create(topics.topic(stems[1]), 2)
    topics.produce(topics.topic(stems[1]), of_table(history, stems[1]), 2)
    # a quiet topic is read through to the time its end was requested, a busy one to its last event
    before = datetime.now(UTC).isoformat()
    reports = topics.ingest(targets, topic_pattern=pattern)
    assert [r.outcome for r in reports] == ["nothing", "done"], reports
    assert reports[0].metrics["read_through"] > before > reports[1].metrics["read_through"]
    reports = topics.ingest(targets, topic_pattern=pattern, end_time=before)
    assert reports[1].metrics["read_through"] == before < reports[0].metrics["read_through"]
    assert topics.rows(one) == topics.rows(two) == history.expected()


@pytest.mark.soak
def test_only_the_table_with_unreadable_metadata_fails(topics: Topics) -> None:
    history, tables = History.of(4, 10), ("good", "bad")
    names, topic_names = [topics.lake.new_name("kafka") for _ in tables], [topics.topic(f"shop.{t}") for t in tables]
    targets = [{"table": n, "key": ["id"], "source_table": f"shop.{t}"} for n, t in zip(names, tables, strict=True)]
    for begin, end in ((0, 5), (5, None)):
        for topic, table in zip(topic_names, tables, strict=True):
            topics.produce(topic, of_table(history, table)[begin:end])
        restore = topics.lake.break_metadata(names[1]) if begin else None
        reports = topics.ingest(targets, topics=topic_names)
    assert [r.outcome for r in reports] == ["done", "failed"], reports
    assert restore is not None and "Cannot load the table" in str(reports[1].reason)
    restore()
    assert [r.outcome for r in topics.ingest(targets, topics=topic_names)] == ["nothing", "done"]
    assert topics.rows(names[0]) == topics.rows(names[1]) == history.expected()


def test_another_log_in_the_same_topic_is_refused(topics: Topics) -> None:
    """The connector has followed its database to a server whose log has lower positions."""
    name, topic, history = topics.lake.new_name("kafka"), topics.topic(), History(random.Random(3))
    target = {"table": name, "key": ["id"]}
    topics.create(topic)
    for key in range(4):
        history.insert(key)
    topics.produce(topic, history.events)
    only(topics.ingest(target, topics=[topic]))
    before, known = history.expected(), len(history.events)
    history.lsn = 0
    history.update(1, touch_doc=True)
    (event,) = history.events[known:]
    # the same event sent again is accepted
    topics.produce(topic, [event])
    only(topics.ingest(target, topics=[topic]))
    event["value"]["source"]["ts_ms"] += 60_000
    topics.produce(topic, [event])
    another_log = f"source has another log now: the events of {topic}/0 are newer"
    assert another_log in refused(topics.ingest(target, topics=[topic]))
    assert topics.rows(name) == before
    # a new table meets the other log within its first batch
    other = topics.lake.new_name("kafka")
    reason = refused(topics.ingest({**target, "table": other}, topics=[topic]))
    assert another_log in reason and "others before them" in reason
    assert not topics.lake.spark.catalog.tableExists(f"lake.{other}")


def test_a_recreated_topic_is_refused_until_accepted(topics: Topics) -> None:
    name, topic, history = topics.lake.new_name("kafka"), topics.topic(), History.of(13, 12)
    target = {"table": name, "key": ["id"]}
    topics.create(topic)
    topics.produce(topic, history.events)
    before = position(only(topics.ingest(target, topics=[topic])))["topics"][topic]["id"]
    topics.delete(topic)
    assert "do not exist" in refused(topics.ingest(target, topics=[topic]))
    topics.create(topic)
    # positions start lower, as after a restore of the source
    again = History(random.Random(1), rows=dict(history.rows), lsn=10)
    again.insert(50)
    again.delete(min(history.rows))
    topics.produce(topic, again.events)
    reason = refused(topics.ingest(target, topics=[topic]))
    assert "is not the one that fed the table" in reason and before in reason
    assert topics.rows(name) == history.expected()
    topic_id = topics.admin_id(topic)
    report = only(topics.ingest(target, topics=[topic], accept_topic_ids=[topic_id]))
    assert position(report)["epoch"] == 2
    assert topics.rows(name) == again.expected()


@pytest.mark.soak
def test_quarantined_messages_keep_the_epoch_of_their_topic(topics: Topics) -> None:
    name, quarantine, topic = topics.lake.new_name("kafka"), topics.lake.new_name("quarantine"), topics.topic()
    target = {"table": name, "key": ["id"], "columns": {"n": "int"}}
    old, new = History(random.Random(4), lsn=1000), History(random.Random(5), lsn=10)

    def ingest(history: History, **source: Any) -> None:
        topics.create(topic)
        first = history.events[0]["value"]["after"]
        topics.produce(
            topic, [{**history.events[0], "value": {**history.events[0]["value"], "after": {**first, "n": "x"}}}]
        )
        topics.produce(topic, history.events[1:])
        if source:
            source = {"accept_topic_ids": [topics.admin_id(topic)]}
        only(topics.ingest(target, topics=[topic], options=options, **source))

    options = {"quarantine_table": quarantine, "max_quarantined_fraction": 1.0}
    for key in (1, 2):
        old.insert(key)
    ingest(old)
    topics.delete(topic)
    for key in (3, 1):
        new.insert(key)
    ingest(new, again=True)
    places = [place for (place,) in topics.lake.duckdb_rows(quarantine, "place")]
    assert places == 2 * [f"{topic}/0@0"]
    # repaired by hand, the older row must not win over the newer epoch's
    text = "replace(CAST(raw_value AS string), '\"x\"', '7')"
    topics.lake.sql(f"UPDATE lake.{quarantine} SET raw_value = CAST({text} AS binary)")
    document = topics.spec(target, topics=[topic], options=options)
    report = run(parse_spec({**document, "job": "replay_quarantine"}), ingest_job).tables[0]
    assert (report.outcome, report.metrics["quarantined_before"], report.metrics["quarantined_still"]) == ("done", 2, 0)
    names = {key: row["name"] for key, row in {**old.rows, **new.rows}.items()}
    assert [row[:2] for row in topics.rows(name)] == sorted(names.items())
    assert topics.lake.duckdb_rows(quarantine, "place") == []


def test_offsets_that_retention_removed_are_refused(topics: Topics) -> None:
    name, topic, history = topics.lake.new_name("kafka"), topics.topic(), History(random.Random(1))
    target = {"table": name, "key": ["id"]}
    topics.create(topic)
    history.insert(1)
    topics.produce(topic, history.events)
    only(topics.ingest(target, topics=[topic]))
    for key in range(2, 6):
        history.insert(key)
    topics.produce(topic, history.events[1:])
    done = topics.admin.delete_records([TopicPartition(topic, 0, 3)])
    assert [future.result(30).low_watermark for future in done.values()] == [3]
    reason = refused(topics.ingest(target, topics=[topic]))
    assert "no longer has the offset 1" in reason and "accept_gaps" in reason
    only(topics.ingest(target, topics=[topic], accept_gaps=True))
    assert [row[0] for row in topics.rows(name)] == [1, 4, 5]


def test_added_partitions_make_the_order_strict(topics: Topics) -> None:
    name, topic, history = topics.lake.new_name("kafka"), topics.topic(), History.of(17, 30)
    target = {"table": name, "key": ["id"]}
    topics.create(topic)
    topics.produce(topic, history.events)
    assert "marks" in position(only(topics.ingest(target, topics=[topic])))
    topics.grow(topic, 4)
    # replayed after the change: a key's old states lie in a partition that never fed the table
    topics.produce(topic, [e for e in history.events if not e["headers"]], 4)
    report = only(topics.ingest(target, topics=[topic]))
    assert "got more partitions" in position(report)["strict"] and "marks" not in position(report)
    assert len(position(report)["topics"][topic]["next"]) == 4
    assert report.metrics["suspects"] > 0
    assert topics.rows(name) == history.expected()


def test_a_truncate_drops_earlier_rows_of_other_partitions(topics: Topics) -> None:
    name, topic, history = topics.lake.new_name("kafka"), topics.topic(), History(random.Random(4))
    log = topics.lake.new_name("log")
    target = {"table": name, "key": ["id"], "history_table": log}
    topics.create(topic, 2)
    for key in range(3):
        history.insert(key)
    late = [e for e in history.events if partition_of(e) == 1]
    history.lsn += 10
    sequence = json.dumps([str(history.lsn - 5), str(history.lsn)])
    source = {**history.events[-1]["value"]["source"], "lsn": history.lsn, "sequence": sequence}
    truncate: dict[str, Any] = {
        "key": None,
        "headers": [],
        "value": {"op": "t", "before": None, "after": None, "source": source},
    }
    topics.produce(topic, [e for e in history.events if e not in late], 2)
    topics.produce(topic, [truncate], 1)
    only(topics.ingest(target, topics=[topic]))
    topics.produce(topic, late, 2)
    history.rows.clear()
    history.insert(99)
    topics.produce(topic, history.events[-1:], 2)
    report = only(topics.ingest(target, topics=[topic]))
    assert report.metrics["older_dropped"] == len(late) and "truncated" not in position(report)
    assert topics.rows(name) == history.expected()
    assert topics.lake.duckdb_rows(log, "count(*)") == [(5,)]


def test_start_and_end_time_bound_a_run(topics: Topics) -> None:
    name, topic, history = topics.lake.new_name("kafka"), topics.topic(), History(random.Random(5))
    target = {"table": name, "key": ["id"]}
    topics.create(topic)
    for key in range(4):
        history.insert(key)
    day = 86_400_000
    topics.produce(topic, history.events, times=[day * i for i in range(1, 5)])
    bounds = {"start": "1970-01-03T00:00:00+00:00", "end_time": "1970-01-04T00:00:00+00:00"}
    only(topics.ingest(target, topics=[topic], **bounds))
    assert [row[0] for row in topics.rows(name)] == [1]
    only(topics.ingest(target, topics=[topic]))
    assert [row[0] for row in topics.rows(name)] == [1, 2, 3]


def test_latest_needs_a_table_and_keeps_its_position(topics: Topics) -> None:
    name, topic, history = topics.lake.new_name("kafka"), topics.topic(), History(random.Random(6))
    target = {"table": name, "key": ["id"], "columns": {"id": "bigint"}}
    topics.create(topic)
    history.insert(1)
    topics.produce(topic, history.events)
    assert "latest" in refused(topics.ingest(target, topics=[topic], start="latest"))
    columns = "id bigint, name string, n bigint, doc string, _lakecdc_order string, _lakecdc_source_time timestamp"
    topics.lake.sql(f"CREATE TABLE lake.{name} ({columns}) USING iceberg")
    only(topics.ingest(target, topics=[topic], start="latest"))
    assert topics.rows(name) == []
    history.insert(2)
    topics.produce(topic, history.events[1:])
    only(topics.ingest(target, topics=[topic], start="latest"))
    assert [row[0] for row in topics.rows(name)] == [2]


def test_routed_topics_feed_one_table(topics: Topics) -> None:
    name, other = topics.lake.new_name("kafka"), topics.lake.new_name("kafka")
    one, two = History(random.Random(1)), History(random.Random(2))
    for key in range(4):
        one.insert(key)
        two.insert(key + 10)
    names = [topics.topic("north.t"), topics.topic("south.t")]
    for topic, history in zip(names, (one, two), strict=True):
        topics.create(topic)
        topics.produce(topic, history.events)
    routes = {name: rf"pg{topics.number}\.\w+\.t", other: rf"pg{topics.number}\.north\.t"}
    targets = [{"table": table, "source_table": "shop.t", "key": ["id"]} for table in (name, other)]
    reports = topics.ingest(targets, topics=names, routes=routes)
    assert [r.outcome for r in reports] == ["done", "done"], reports
    assert "several topics" in reports[0].metrics["order_by_partition"]
    assert topics.rows(name) == [*one.expected(), *two.expected()]
    assert topics.rows(other) == one.expected()


def test_an_unreachable_cluster_is_distinguished_from_bad_input(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakecdc.contract.spec import parse_spec
    from lakecdc.ingest.job import ingest
    from lakecdc.ingest.sources.kafka import librdkafka
    from lakecdc.runtime.run import run

    monkeypatch.setattr(librdkafka, "_SECONDS", 2.0)
    spec = topics.spec({"table": "test.none", "key": ["id"]}, topics=["t"], bootstrap_servers="127.0.0.1:1")
    report = run(parse_spec(spec), ingest)
    assert report.failure_class == "cluster" and "127.0.0.1:1" in (report.error or "")
