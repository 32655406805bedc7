"""Both readers feed the same tables: transactions and aborted ones, tombstones, headers, kills, and a login."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from lakecdc.contract.report import JobReport
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.ingest.sources.kafka import librdkafka
from lakecdc.ingest.sources.kafka.cluster import Range, Reader
from lakecdc.ingest.sources.kafka.source import open_reader
from lakecdc.runtime import failpoints
from lakecdc.runtime.run import run
from local_services import kafka_jars
from tests.lakecdc.ingest.histories import History
from tests.lakecdc.ingest.killing import Run, act_at
from tests.lakecdc.ingest.sources.kafka.conftest import PASSWORD, Topics
from tests.on_demand import on_demand

pytestmark = pytest.mark.services

READERS = ("librdkafka", "spark")
LOGIN = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "lakecdc",
    "sasl.password": {"env": "KAFKA_PASSWORD"},
}


def in_transactions(topics: Topics, topic: str, events: list[dict[str, Any]], partitions: int) -> None:
    """Produce events in transactions; after each, an aborted one has the same changes with other values."""
    producer = Producer({"bootstrap.servers": topics.kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for first in range(0, len(events), 9):
        part = events[first : first + 9]
        false = [{**e, "value": {**e["value"], "op": "d", "before": e["key"], "after": None}} for e in part]
        for produced in (part, false):
            producer.begin_transaction()
            topics.produce(topic, produced, partitions, producer=producer)
            producer.commit_transaction(30) if produced is part else producer.abort_transaction(30)


def test_both_readers_fill_the_same_table(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, history, reports = topics.topic(), History.of(23, 18), []
    topics.create(topic, 3)
    in_transactions(topics, topic, history.events, 3)
    for reader in READERS:
        topics.reader, name = reader, topics.lake.new_name(f"by_{reader}")
        target = {"table": name, "key": ["id"], "history_table": f"{name}_log"}
        spec = parse_spec(topics.spec(target, topics=[topic], max_offsets_per_batch=50))
        if reader == "spark":
            act_at(monkeypatch, "after_side_tables@2=raise")
            stopped = run(spec, ingest)
            assert "fail point" in f"{stopped.error} {[t.reason for t in stopped.tables]}", stopped
            monkeypatch.delenv(failpoints.VARIABLE)
        (report,) = run(spec, ingest).tables
        assert report.outcome == "done" and report.metrics["offsets_left"] == 0, report
        assert topics.rows(name) == history.expected()
        log = sorted(map(repr, topics.lake.duckdb_rows(f"{name}_log")))
        reports.append((log, report.metrics["position"], report.metrics["decoding"]))
    assert reports[0] == reports[1]


def test_both_readers_return_the_same_bytes(topics: Topics) -> None:
    topic = topics.topic()
    topics.create(topic, 2)
    history = History.of(29, 20)
    history.change_key(min(history.rows), 99)
    in_transactions(topics, topic, history.events, 2)
    topics.create(topics.topic("quiet"), 1)
    with closing(reader_of(topics, "librdkafka")) as one, closing(reader_of(topics, "spark")) as two:
        clusters = one, two
        described = [c.topics(lambda name: name.startswith(f"pg{topics.number}.")) for c in clusters]
        assert described[0] == described[1] and len(described[0]) == 2
        places = [(t.name, p) for t in described[0].values() for p in range(t.partitions)]
        offsets = [tuple(c.offsets(places, at) for at in ("earliest", "latest", 1_700_000_000_100)) for c in clusters]
        assert offsets[0] == offsets[1]
        lows, highs, _ = offsets[0]
        ranges = [Range(*place, low, highs[place]) for place, low in lows.items() if highs[place] > low]
        frames = [reader.messages(ranges) for reader in (one, two)]
        assert frames[0].dtypes == frames[1].dtypes
        rows = [sorted(frame.collect(), key=lambda r: str(r["place"])) for frame in frames]
        assert rows[0] == rows[1]
        assert {r["value"] is None for r in rows[0]} == {bool(r["headers"]) for r in rows[0]} == {True, False}
        samples = [sorted(map(repr, reader.sample(ranges))) for reader in (one, two)]
        assert samples[0] == samples[1]


def reader_of(shop: Topics, reader: str, **source: Any) -> Reader:
    """Open a reader and close it at the end."""
    shop.reader = reader
    spec = parse_spec(shop.spec({"table": "test.none", "key": ["id"]}, **{"topics": ["t"], **source}))
    assert isinstance(spec.source, KafkaSource)
    return open_reader(shop.lake.spark, spec.source)


@pytest.mark.parametrize("reader", on_demand(READERS, in_ci=("librdkafka",)))
def test_a_login_suffices_and_is_never_shown(
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    reader: str,
) -> None:
    name, topic, history = topics.lake.new_name("login"), topics.topic(), History.of(31, 10)
    topics.reader = reader
    topics.create(topic)
    topics.produce(topic, history.events)
    source = {"topics": [topic], "settings": LOGIN, "bootstrap_servers": topics.kafka.sasl_servers}
    target = {"table": name, "key": ["id"]}
    # librdkafka retries a refused login for this long
    monkeypatch.setattr(librdkafka, "_SECONDS", 3.0)
    caplog.set_level(logging.DEBUG, "lakecdc")
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    (report,) = topics.ingest(target, **source)
    assert report.outcome == "done", report
    assert topics.rows(name) == history.expected()
    with closing(reader_of(topics, reader, **source)) as opened:
        opened.messages([Range(topic, 0, 0, 1)]).explain(extended=True)
    monkeypatch.setenv("KAFKA_PASSWORD", f"{PASSWORD} wrong")
    refused: JobReport = run(parse_spec(topics.spec(target, **source)), ingest)
    assert refused.failure_class == "bad input" and topics.kafka.sasl_servers in (refused.error or ""), refused
    output = capfd.readouterr()
    assert "Physical Plan" in output.out
    assert PASSWORD not in f"{output.out}{output.err}{caplog.text}{report}{refused}"


def test_an_unreachable_cluster_is_distinguished_from_bad_input(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakecdc.ingest.sources.kafka import spark_reader

    monkeypatch.setattr(spark_reader, "_MILLISECONDS", 2000)
    topics.reader = "spark"
    spec = topics.spec({"table": "test.none", "key": ["id"]}, topics=["t"], bootstrap_servers="127.0.0.1:1")
    report = run(parse_spec(spec), ingest)
    assert report.failure_class == "cluster" and "127.0.0.1:1" in (report.error or "")


def test_a_missing_jar_is_reported_before_any_write(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakecdc.ingest.sources.kafka import spark_reader

    monkeypatch.setattr(spark_reader, "_PROVIDER", "org.apache.spark.sql.kafka010.NoSuchProvider")
    topics.reader = "spark"
    report = run(parse_spec(topics.spec({"table": "test.none", "key": ["id"]}, topics=["t"])), ingest)
    assert report.failure_class == "bad input" and "spark-sql-kafka" in (report.error or ""), report


def test_options_that_librdkafka_lacks_name_the_other_reader(topics: Topics) -> None:
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    report = run(
        parse_spec(topics.spec({"table": "test.none", "key": ["id"]}, topics=["t"], settings=settings)), ingest
    )
    assert report.failure_class == "bad input" and '"reader": "spark"' in (report.error or ""), report


@pytest.mark.soak
def test_a_killed_process_loads_the_jar_and_leaves_no_password(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name, topic, history = topics.lake.new_name("killed"), topics.topic(), History.of(37, 20)
    topics.reader = "spark"
    topics.create(topic, 2)
    topics.produce(topic, history.events, 2)
    (tmp_path / "events").mkdir()
    events = "--conf spark.eventLog.enabled=true --conf spark.eventLog.compress=false"
    events += f" --conf spark.eventLog.dir=file://{tmp_path}/events"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{kafka_jars.spark_arguments()} {events} pyspark-shell")
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    source = {"topics": [topic], "settings": LOGIN, "bootstrap_servers": topics.kafka.sasl_servers}
    spec = topics.spec({"table": name, "key": ["id"]}, max_offsets_per_batch=15, **source)
    assert Run(tmp_path, spec, "after_commit=kill").was_killed()
    (report,) = run(parse_spec(spec), ingest).tables
    assert report.outcome == "done", report
    assert topics.rows(name) == history.expected()
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".crc")
    assert "KafkaRelation" in written and PASSWORD not in written
