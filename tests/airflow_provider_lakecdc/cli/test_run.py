"""The command ``run``: jobs through their operators, with a fake spark-submit and, on demand, with Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.airflow_provider_lakecdc.cli.conftest import Lakecdc
from tests.airflow_provider_lakecdc.conftest import CATALOG_SECRET, FakeSpark, connection
from tests.airflow_provider_lakecdc.tables import FedTable

FILES = {
    "source": {"type": "files", "path": "/nowhere/*.jsonl", "format": "debezium-json"},
    "targets": [{"table": "shop.orders", "key": ["id"]}, {"table": "shop.items", "key": ["id"]}],
}

COLUMNS = {"orders": "ordered_at", "items": "changed_at"}


@pytest.fixture
def shop(lake: dict[str, str]) -> FedTable:
    """Make a table with many small files, one without work, and one that is not configured."""
    for name in ("items", "tmp"):
        FedTable(lake, f"shop.{name}").ingest(None)
    orders = FedTable(lake)
    for _ in range(6):
        orders.ingest(None)
    return orders


def config(folder: Path, **parts: Any) -> str:
    path = folder / "lakecdc.json"
    path.write_text(json.dumps({"catalog_conn_id": "lake", "tables": ["shop.orders", "shop.items"], **parts}))
    return str(path)


@pytest.mark.usefixtures("shop")
def test_a_job_is_submitted_for_the_tables_that_need_it(
    lakecdc: Lakecdc, spark_submit: FakeSpark, tmp_path: Path
) -> None:
    configured = config(
        tmp_path,
        spark={"driver_memory": "3g"},
        options={"compact_data_files": {"small_file_ratio": 0.5, "verify": "sample"}},
    )
    ended = lakecdc("run", "compact_data_files", "--config", configured, "--options", '{"verify": "full"}')
    assert (ended.code, ended.err) == (0, "") and CATALOG_SECRET not in ended.out
    (call,) = spark_submit.calls
    assert call["spec"]["tables"] == ["shop.orders"] and "3g" in call["arguments"]
    assert call["spec"]["options"]["small_file_ratio"] == 0.5 and call["spec"]["options"]["verify"] == "full"
    rows = {line.split()[0]: line for line in ended.out.splitlines() if line.startswith("shop.")}
    assert rows["shop.items"].split()[1] == "nothing" and "rows=3" in rows["shop.orders"]
    (report_line,) = [line for line in ended.out.splitlines() if line.startswith("report at file://")]
    report = json.loads(Path(report_line.removeprefix("report at file://")).read_text())
    assert report["tables"][0]["outcome"] == "done"


@pytest.mark.usefixtures("shop")
def test_spark_is_not_started_without_work(lakecdc: Lakecdc, spark_submit: FakeSpark) -> None:
    ended = lakecdc("run", "compact_data_files", "--catalog", "lake", "--tables", "shop.items", "--json")
    assert ended.code == 0 and spark_submit.calls == []
    assert ended.document["tables"]["shop.items"]["outcome"] == "nothing"


@pytest.mark.parametrize("job", ["compact_data_files", "expire_snapshots", "rebucket", "ingest"])
def test_misspelt_tables_are_refused_before_spark_starts(
    lakecdc: Lakecdc, spark_submit: FakeSpark, tmp_path: Path, lake: dict[str, str], shop: FedTable, job: str
) -> None:
    broken = FedTable(lake, "shop.broken")
    for _ in range(6):
        broken.ingest(None)
    source = {**FILES["source"], "path": f"{tmp_path}/*.jsonl"}  # type: ignore[dict-item]
    options = {"ingest": {"quarantine_table": "shop.broken"}}
    configured = config(tmp_path, **{**FILES, "source": source}, options=options)
    run = ("run", job, "--config", configured, "--tables")
    ended = lakecdc(*run, "shop.order", "shop.orders")
    assert (ended.code, spark_submit.calls) == (4, []) and "no table shop.order." in ended.err
    assert lakecdc(*run, "shop.orders").code == 0
    for call in spark_submit.calls:
        assert call["spec"]["tables"] == ["shop.orders"]
        assert "shop.broken" not in call["spec"]["options"].get("side_tables", ())


@pytest.mark.usefixtures("shop")
def test_a_missing_table_of_the_configuration_is_skipped(
    lakecdc: Lakecdc, spark_submit: FakeSpark, tmp_path: Path
) -> None:
    configured = config(tmp_path, tables=["shop.orders", "shop.later"])
    ended = lakecdc("run", "compact_data_files", "--config", configured, "--json")
    assert ended.code == 0 and ended.document["tables"]["shop.later"]["outcome"] == "skipped"
    assert [call["spec"]["tables"] for call in spark_submit.calls] == [["shop.orders"]]


@pytest.mark.usefixtures("shop")
def test_a_dry_run_is_submitted_as_one(lakecdc: Lakecdc, spark_submit: FakeSpark) -> None:
    lakecdc("run", "compact_data_files", "--catalog", "lake", "--tables", "shop.orders", "--dry-run")
    assert spark_submit.calls[0]["spec"]["options"]["dry_run"] is True


@pytest.mark.usefixtures("shop")
def test_an_approval_is_optional(lakecdc: Lakecdc, spark_submit: FakeSpark, tmp_path: Path) -> None:
    job = "remove_orphan_files"
    policy = {"shop.orders": {"approve": [job], "options": {job: {"dry_run": False}}}}
    run = ("run", job, "--config", config(tmp_path, policy=policy), "--tables", "shop.orders", "--json")
    left = lakecdc(*run).document["tables"]["shop.orders"]
    assert left["outcome"] == "skipped" and "it needs approval" in left["reason"] and spark_submit.calls == []
    approved = {"shop.orders": {"uri": "file:///found.jsonl", "sha256": "4f"}}
    assert lakecdc(*run, "--options", json.dumps({"approved": approved})).code == 0
    assert lakecdc(*run, "--dry-run").code == 0
    approved_run, dry = [call["spec"]["options"] for call in spark_submit.calls]
    assert (approved_run["approved"], approved_run["dry_run"], dry["dry_run"]) == (approved, False, True)


@pytest.mark.parametrize(
    ("failure_class", "outcome", "code"),
    [("conflict", "conflict", 3), ("bad input", "failed", 4), ("cluster", "failed", 1), ("unknown", "failed", 1)],
)
@pytest.mark.usefixtures("shop")
def test_the_exit_code_is_that_of_the_report(
    lakecdc: Lakecdc, spark_submit: FakeSpark, failure_class: str, outcome: str, code: int
) -> None:
    reported = {"outcome": outcome, "failure_class": failure_class, "reason": "it was in the way"}
    spark_submit.behave({"shop.orders": reported}, exit=code)
    ended = lakecdc("run", "compact_data_files", "--catalog", "lake", "--tables", "shop.orders")
    assert ended.code == code and "Traceback" not in ended.out + ended.err
    assert "it was in the way" in ended.out
    assert f"compact_data_files failed ({failure_class}) for 1 of 1 tables. " in ended.out


@pytest.mark.usefixtures("shop")
def test_a_job_without_a_report_shows_the_error_of_spark(lakecdc: Lakecdc, spark_submit: FakeSpark) -> None:
    spark_submit.behave(report=False, exit=1, output=("java.lang.OutOfMemoryError: heap",))
    ended = lakecdc("run", "compact_data_files", "--catalog", "lake", "--tables", "shop.orders", "--json")
    (error,) = ended.document["errors"]
    assert ended.code == 1 and "The job left no report." in error and "Increase driver_memory" in error


@pytest.mark.usefixtures("shop")
def test_tables_selected_only_by_a_pattern_need_a_policy(
    lakecdc: Lakecdc, spark_submit: FakeSpark, tmp_path: Path, lake: dict[str, str]
) -> None:
    ended = lakecdc("run", "compact_data_files", "--catalog", "lake", "--tables", "shop.*")
    assert ended.code == 4 and "is not allowed on shop.items, shop.orders, shop.tmp." in ended.err
    policy = {"shop.o*": {"allow": ["compact_data_files"]}}
    lakecdc("run", "compact_data_files", "--config", config(tmp_path, tables=["shop.*"], policy=policy))
    assert [call["spec"]["tables"] for call in spark_submit.calls] == [["shop.orders"]]
    # and a named table is subject to its team's policy
    with FedTable.open(lake).load_table("shop.orders").transaction() as change:
        change.set_properties({"lakecdc.policy.allow": "rewrite_delete_files"})
    ended = lakecdc("run", "compact_data_files", "--catalog", "lake", "--tables", "shop.orders")
    assert ended.code == 4 and "lakecdc.policy" in ended.err


def test_nothing_is_removed_from_an_unreadable_table(
    lakecdc: Lakecdc, spark_submit: FakeSpark, tmp_path: Path, shop: FedTable
) -> None:
    with shop.table.transaction() as change:
        change.set_properties({"lakecdc.policy.min-row-age": "10 years"})
    retention = {"shop.orders": {"time_column": "at", "max_age": 86400}}
    for job in ("expire_partitions", "expire_snapshots"):
        options = {"expire_snapshots": {"max_age": 0}}
        configured = config(tmp_path, tables=["shop.orders"], retention=retention, options=options)
        ended = lakecdc("run", job, "--config", configured, "--json")
        (error,) = ended.document["errors"]
        assert ended.code == 1 and "Cannot assess shop.orders" in error and "min-row-age" in error
        assert ended.document["tables"]["shop.orders"]["outcome"] == "failed"
    assert spark_submit.calls == []


@pytest.mark.usefixtures("shop")
def test_a_job_receives_the_configured_window(lakecdc: Lakecdc, spark_submit: FakeSpark, tmp_path: Path) -> None:
    policy = {"*": {"window": {"begins": "00:00", "ends": "23:59:59.999"}}}
    run = ("run", "expire_snapshots", "--tables", "shop.orders", "--options", '{"max_age": 0, "retain_last": 1}')
    ended = lakecdc(*run, "--config", config(tmp_path, policy=policy, schedules={"timezone": "Asia/Tokyo"}))
    protection = spark_submit.calls[0]["spec"]["options"]["protection"]["shop.orders"]
    assert ended.code == 0 and (protection["windows"], protection["zone"]) == ([policy["*"]["window"]], "Asia/Tokyo")


@pytest.mark.usefixtures("shop")
def test_tables_with_different_options_have_separate_applications(
    lakecdc: Lakecdc, spark_submit: FakeSpark, tmp_path: Path
) -> None:
    retention = {f"shop.{name}": {"time_column": column, "max_age": 86400} for name, column in COLUMNS.items()}
    failed = {"outcome": "failed", "failure_class": "bad input", "reason": "no column"}
    spark_submit.behave({"shop.orders": failed}, exit=4)
    ended = lakecdc("run", "expire_partitions", "--config", config(tmp_path, retention=retention), "--json")
    column_by_table = {call["spec"]["tables"][0]: call["spec"]["options"]["time_column"] for call in spark_submit.calls}
    assert column_by_table == {f"shop.{name}": column for name, column in COLUMNS.items()}
    # a failing one does not prevent the other
    assert ended.code == 4
    assert {name: facts["outcome"] for name, facts in ended.document["tables"].items()} == {
        "shop.orders": "failed",
        "shop.items": "done",
    }
    assert len(ended.document["reports"]) == 2


def test_tables_are_fed(lakecdc: Lakecdc, spark_submit: FakeSpark, tmp_path: Path, lake: dict[str, str]) -> None:
    source = {**FILES["source"], "path": f"{tmp_path}/*.jsonl"}  # type: ignore[dict-item]
    configured = config(tmp_path, **{**FILES, "source": source})
    ended = lakecdc("run", "ingest", "--config", configured, "--tables", "shop.items", "--json")
    assert ended.code == 0 and spark_submit.calls[0]["spec"]["tables"] == ["shop.items"]
    assert len(spark_submit.calls[0]["spec"]["target"]) == 2
    # errors are reported before Spark is started
    ended = lakecdc("run", "ingest", "--config", config(tmp_path, **FILES))
    assert ended.code == 4 and "the folder /nowhere does not exist" in ended.out and len(spark_submit.calls) == 1


@pytest.mark.parametrize(
    ("arguments", "parts", "said"),
    [
        (("sort_files",), {}, "Did you mean 'sort_data_files'?"),
        (("rebucket", "--options", '{"tolerence": 2}'), {}, "Did you mean 'tolerance'?"),
        (("rebucket", "--options", "[1"), {}, "JSON"),
        (("ingest",), {}, "ingest needs source and targets"),
        (("govern",), {}, "govern runs a plan of a governance DAG, not a single job."),
        (
            ("ingest",),
            {"source": {"type": "jdbc", "url": "jdbc:sqlite:/x", "cursor_column": "c"}, "targets": FILES["targets"]},
            "reads the data interval of a DAG run, and this run has none. Trigger the ingest DAG",
        ),
        (
            ("expire_snapshots",),
            {"options": {"expire_snapshots": {"older_than": "{{ data_interval_start }}"}}},
            "a template, which only a DAG run renders",
        ),
    ],
)
@pytest.mark.usefixtures("shop")
def test_invalid_requests_are_refused(
    lakecdc: Lakecdc,
    spark_submit: FakeSpark,
    tmp_path: Path,
    arguments: tuple[str, ...],
    parts: dict[str, Any],
    said: str,
) -> None:
    ended = lakecdc("run", *arguments, "--config", config(tmp_path, **parts))
    assert (ended.code, ended.out) == (4, "") and said in ended.err and ended.err.count("\n") == 1
    assert spark_submit.calls == []


@pytest.mark.soak
def test_a_job_runs_on_spark(
    lakecdc: Lakecdc, shop: FedTable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lake: dict[str, str]
) -> None:
    connection(monkeypatch, "spark_default", conn_type="spark", host="local[2]")
    assert shutil.which("java")
    ended = lakecdc("run", "compact_data_files", "--catalog", "lake", "--tables", "shop.orders", "--json")
    facts = ended.document["tables"]["shop.orders"]
    assert (ended.code, facts["outcome"]) == (0, "done"), ended.document
    table = FedTable.open(lake).load_table("shop.orders")
    assert len(table.inspect.data_files()) == 1 and table.scan().to_arrow().num_rows == 6
