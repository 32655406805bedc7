"""Metrics as a StatsD server and an OpenTelemetry collector receive them from Airflow."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from airflow_provider_lakecdc.observe.metrics import COUNTERS, DURATION, GAUGES, TABLES, emit
from airflow_provider_lakecdc.operators.govern import GovernOperator
from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.report import JobReport, TableReport
from lakecdc.contract.spec import GOVERN, SOURCE_JOBS
from tests.airflow_provider_lakecdc import home
from tests.airflow_provider_lakecdc.conftest import FakeSpark, TaskInstance, changed

#: metrics derived from several numbers of an ingest report
DERIVED = {
    "events": "counter",
    "events_per_second": "gauge",
    "rows_per_second": "gauge",
    "source_time": "gauge",
    "source_lag_seconds": "gauge",
    "last_write": "gauge",
}

FED = TableReport(
    "shop.orders",
    "done",
    metrics={
        **{"events": 3, "events_c": 40, "events_d": 2, "rows_written": 40, "quarantined": 0, "commits": 1},
        **{"freshness_promised_seconds": 20.0, "freshness_late_seconds": 10.0},
        **{"seconds": 2.0, "read_through": "2026-01-01T05:59:30+00:00", "position": {"lsn": "0/1"}},
    },
)
REPORT = JobReport("ingest", "2026-01-01T05:59:00+00:00", "2026-01-01T06:00:00+00:00", tables=(FED,))


class UdpClient:
    """The methods of the package ``statsd`` that Airflow uses, in StatsD's line protocol over UDP."""

    def __init__(self, host: str, port: int, prefix: str, ipv6: bool) -> None:
        self._socket, self._address, self._prefix = (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            (host, port),
            prefix,
        )

    def incr(self, stat: str, count: int, rate: float) -> None:
        self._send(f"{stat}:{count}|c")

    def gauge(self, stat: str, value: float, rate: float, delta: bool) -> None:
        self._send(f"{stat}:{value}|g")

    def timing(self, stat: str, delta: Any) -> None:
        self._send(f"{stat}:{delta.total_seconds() * 1000:g}|ms")

    def _send(self, line: str) -> None:
        self._socket.sendto(f"{self._prefix}.{line}".encode(), self._address)


@dataclass
class StatsdServer:
    """A StatsD server that records what it receives."""

    socket: socket.socket

    def lines(self) -> dict[str, str]:
        """Return value and type by name and tags; everything has arrived, as both run on one machine."""
        metrics: dict[str, str] = {}
        while True:
            try:
                name, _, value = self.socket.recv(65536).decode().rpartition(":")
            except TimeoutError:
                return metrics
            # Airflow sends its own metrics as well
            if ".lakecdc." in name:
                metrics[name] = value


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsdServer]:
    """Start a server and configure Airflow for it like its task processes."""
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics import stats_utils

    module = types.ModuleType("statsd")
    module.StatsClient = UdpClient  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "statsd", module)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.2)
        settings = {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(server.getsockname()[1])}
        for name, value in {**settings, "STATSD_INFLUXDB_ENABLED": "True"}.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{name}", value)
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)
        yield StatsdServer(server)
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "False")
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)


def test_statsd_receives_the_metrics_of_the_report(statsd: StatsdServer, context: Any) -> None:
    emit(changed(context, ti=TaskInstance(stats_tags={"dag_id": "d"})), "lake", REPORT)
    tags = "dag_id=d,job=ingest,catalog=lake,table=shop.orders"
    assert statsd.lines() == {
        f"airflow.lakecdc.tables,{tags},outcome=done": "1|c",
        f"airflow.lakecdc.ingest.rows_written,{tags}": "40|c",
        f"airflow.lakecdc.ingest.commits,{tags}": "1|c",
        f"airflow.lakecdc.ingest.quarantined,{tags}": "0|c",
        f"airflow.lakecdc.ingest.duration,{tags}": "2000|ms",
        f"airflow.lakecdc.ingest.events,{tags},op=c": "40|c",
        f"airflow.lakecdc.ingest.events,{tags},op=d": "2|c",
        f"airflow.lakecdc.ingest.events_per_second,{tags}": "21.0|g",
        f"airflow.lakecdc.ingest.rows_per_second,{tags}": "20.0|g",
        f"airflow.lakecdc.ingest.source_time,{tags}": "1767247170.0|g",
        f"airflow.lakecdc.ingest.source_lag_seconds,{tags}": "30.0|g",
        f"airflow.lakecdc.ingest.freshness_promised_seconds,{tags}": "20.0|g",
        f"airflow.lakecdc.ingest.freshness_late_seconds,{tags}": "10.0|g",
        f"airflow.lakecdc.ingest.last_write,{tags}": "1767247200.0|g",
    }


def operator(**arguments: Any) -> RewriteDeleteFilesOperator:
    return RewriteDeleteFilesOperator(task_id="t", catalog_conn_id="lake", tables=["shop.orders"], **arguments)


@pytest.mark.usefixtures("lake")
def test_operators_send_metrics_but_not_of_a_dry_run(
    statsd: StatsdServer, spark_submit: FakeSpark, context: Any
) -> None:
    facts = {"positions": 7, "groups_left": 2, "seconds": {"match": 1.0, "total": 1.5}}
    spark_submit.behave({"shop.orders": {"outcome": "conflict", "failure_class": "conflict", "metrics": facts}})
    with pytest.raises(Exception, match="conflict"):
        operator(dry_run=True).execute(context)
    assert statsd.lines() == {}
    with pytest.raises(Exception, match="conflict"):
        operator().execute(context)
    tags = "job=rewrite_delete_files,catalog=lake,table=shop.orders"
    assert statsd.lines() == {
        f"airflow.lakecdc.tables,{tags},outcome=conflict": "1|c",
        f"airflow.lakecdc.rewrite_delete_files.positions,{tags}": "7|c",
        f"airflow.lakecdc.rewrite_delete_files.groups_left,{tags}": "2|g",
        f"airflow.lakecdc.rewrite_delete_files.duration,{tags}": "1500|ms",
    }


@pytest.mark.usefixtures("lake")
def test_metrics_of_steps_are_sent_for_their_jobs(statsd: StatsdServer, spark_submit: FakeSpark, context: Any) -> None:
    facts = {"rewrite_delete_files shop.orders": {"metrics": {"positions": 7, "seconds": 1.5}}}
    spark_submit.behave({**facts, "remove_orphan_files shop.orders": {"metrics": {"orphan_files": 3}}})
    steps = [{"job": "rewrite_delete_files"}, {"job": "remove_orphan_files"}]
    GovernOperator(task_id="t", catalog_conn_id="lake", tables=["shop.orders"], steps=steps).execute(context)
    tags = "job=rewrite_delete_files,catalog=lake,table=shop.orders"
    # the other one is a dry run
    assert statsd.lines() == {
        f"airflow.lakecdc.tables,{tags},outcome=done": "1|c",
        f"airflow.lakecdc.rewrite_delete_files.positions,{tags}": "7|c",
        f"airflow.lakecdc.rewrite_delete_files.duration,{tags}": "1500|ms",
    }


def test_disabled_or_broken_metrics_do_no_harm(
    context: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    emit(context, "lake", REPORT)
    assert caplog.records == []
    monkeypatch.setattr("airflow.sdk.observability.stats.incr", None)
    emit(context, "lake", REPORT)
    assert "Cannot send the metrics" in caplog.text


@dataclass
class Collector:
    """An OpenTelemetry collector that stores the bodies of requests."""

    url: str
    bodies: list[bytes] = field(default_factory=list)

    def points(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        """Return tags and values by name."""
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        points_by_name: dict[str, list[tuple[dict[str, str], float]]] = {}
        # each body contains everything so far
        for body in self.bodies[-1:]:
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                    data = getattr(metric, metric.WhichOneof("data") or "")
                    for point in data.data_points:
                        tags = {a.key: a.value.string_value for a in point.attributes}
                        value = point.sum if hasattr(point, "sum") else point.as_double or point.as_int
                        points_by_name.setdefault(metric.name, []).append((tags, value))
        return points_by_name


@pytest.fixture
def collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield receiver
        server.shutdown()
        thread.join()


# OpenTelemetry keeps its state in the process, and flushes it as the process ends
SEND = """
import json, sys
from types import SimpleNamespace
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)
from airflow_provider_lakecdc.observe.metrics import emit
from lakecdc.contract.report import parse_report
emit({"ti": SimpleNamespace(stats_tags={"dag_id": "d"})}, "lake", parse_report(json.load(sys.stdin)))
"""


def test_opentelemetry_receives_the_same(collector: Collector) -> None:
    environment = {
        **os.environ,
        "AIRFLOW__METRICS__OTEL_ON": "True",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join([str(home.REPOSITORY), str(home.REPOSITORY / "spark_jobs")]),
    }
    command = [sys.executable, "-c", SEND]
    done = subprocess.run(command, input=REPORT.to_json(), env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    points = collector.points()
    tags = {"dag_id": "d", "job": "ingest", "catalog": "lake", "table": "shop.orders"}
    assert points["airflow.lakecdc.ingest.rows_written"] == [(tags, 40)]
    assert points["airflow.lakecdc.ingest.source_lag_seconds"] == [(tags, 30)]
    assert points["airflow.lakecdc.ingest.duration"] == [(tags, 2000)]
    assert sorted(value for _, value in points["airflow.lakecdc.ingest.events"]) == [2, 40]


def sent_metrics() -> set[tuple[str, str]]:
    """Return names and kinds of all metrics that the code sends."""
    # metrics of a job of several steps are sent for its steps
    sent = {(TABLES, "counter")} | {(f"lakecdc.{job}.{DURATION}", "timer") for job in OPTIONS if job != GOVERN}
    for kind, by_job in (("counter", COUNTERS), ("gauge", GAUGES)):
        sent |= {(f"lakecdc.{job}.{name}", kind) for job, names in by_job.items() for name in names}
    return sent | {
        (f"lakecdc.{job}.{n}", kind) for job in ("ingest", "replay_quarantine") for n, kind in DERIVED.items()
    }


def test_every_name_is_documented() -> None:
    text = (home.REPOSITORY / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| (.+?) \| (counter|gauge|timer) \|", text, re.MULTILINE)
    documented = {(name, kind) for names, kind in rows for name in re.findall(r"`([^`]+)`", names)}
    single = set(OPTIONS) - {GOVERN}
    jobs = {job: {(n.replace("<job>", job), k) for n, k in documented if "<job>" in n} for job in single}
    for job in single - set(SOURCE_JOBS):
        jobs[job] |= {(n.replace("<maintenance job>", job), k) for n, k in documented if "<maintenance job>" in n}
    plain = {(name, kind) for name, kind in documented if "<" not in name}
    replayed = {(n.replace(".ingest.", ".replay_quarantine."), k) for n, k in plain if ".ingest." in n}
    assert plain | replayed | set().union(*jobs.values()) == sent_metrics()
