"""Unknown spec members are refused with a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.rewriting import RewriteDeleteFilesOptions
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.spec import GOVERN, SOURCE_JOBS, loads, parse_spec

CATALOG = {"name": "lake", "properties": {"type": "sql", "uri": "sqlite:////tmp/c.db", "warehouse": "file:///tmp/w"}}
AUDITED = {
    "table": "shop.orders",
    "key": ["id"],
    "publish": "audited",
    "checks": [{"type": "not_null", "columns": ["id"]}],
}


def spec(job: str = "rewrite_delete_files", **rest: Any) -> dict[str, Any]:
    return {"version": 1, "job": job, "catalog": CATALOG, "tables": ["shop.orders"], **rest}


def ingest(**rest: Any) -> dict[str, Any]:
    source = {"type": "files", "path": "/in/*.jsonl", "format": "debezium-json"}
    return spec("ingest", **{"source": source, "target": {"table": "shop.orders", "key": ["id"]}, **rest})


def refusal(document: Any, job: str | None = None) -> str:
    with pytest.raises(SpecError) as caught:
        parse_spec(document, job)
    return str(caught.value)


def test_the_documented_example_is_valid() -> None:
    parsed = parse_spec(spec(options={"verify": "sample", "max_runtime": 60}))
    assert parsed.tables == ("shop.orders",)
    assert isinstance(parsed.options, RewriteDeleteFilesOptions)
    assert parsed.options.verify == "sample" and parsed.options.max_runtime == 60.0


@pytest.mark.parametrize("job", [name for name in OPTIONS if name not in SOURCE_JOBS])
def test_every_job_accepts_dry_run(job: str) -> None:
    needed = {"steps": [{"job": "rewrite_manifests"}]} if job == GOVERN else {}
    assert parse_spec(spec(job, options={"dry_run": True, **needed})).options.dry_run


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optoins": {}}, "Did you mean 'options'"),
        ({"version": 2}, "reads version 1"),
        ({"job": "rewrite"}, "for job 'rewrite'"),
        ({"tables": []}, "names no table"),
        ({"tables": "shop.orders"}, "must be a list"),
        ({"tables": ["orders"]}, "without the catalog"),
        ({"options": {"dryrun": True}}, "Did you mean 'dry_run'"),
        ({"options": {"dry_run": "yes"}}, "must be bool"),
        ({"options": {"max_runtime": True}}, "must be float"),
        ({"options": {"max_runtime": -1}}, "not 0 or more"),
        ({"options": {"verify": "some"}}, "'full', 'sample', 'off'"),
        ({"catalog": {"name": "my-lake"}}, "part of SQL names"),
        ({"source": {}}, "belongs to the job 'ingest'"),
    ],
)
def test_wrong_specs_are_refused(change: dict[str, Any], message: str) -> None:
    assert message in refusal({**spec(), **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": {"table": "shop.orders"}}, 'Add "key"'),
        ({"target": []}, "non-empty list"),
        ({"target": {"table": "shop.orders", "key": ["id"], "mode": "replace"}}, "target.mode is 'replace'"),
        ({"target": {"table": "shop.orders", "mode": "merge"}}, 'Add "key"'),
        ({"target": {"table": "shop.orders", "mode": "append", "history_table": "shop.h"}}, "mode 'append'"),
        ({"target": {"table": "shop.orders", "key": ["id"], "history_table": "h"}}, "history_table is 'h'"),
        ({"target": {**AUDITED, "publish": None}}, "has checks, but publish is not set"),
        ({"target": {**AUDITED, "checks": []}}, "there are no checks"),
        ({"target": {**AUDITED, "mode": "auto"}}, "before it can be checked"),
        ({"target": {**AUDITED, "history_table": "shop.h", "mode": "merge"}}, "before it can be checked"),
        ({"target": {**AUDITED, "checks": [{"type": "freshness", "max_age": 60}]}}, "Put it into table_checks"),
        ({"target": {"table": "shop.orders", "key": ["id"], "history_table": "shop.orders"}}, "twice"),
        ({"target": {"table": "shop.orders", "key": ["id"], "merge_mode": "merge-on-read"}}, "never merges"),
        ({"target": {"table": "shop.orders", "key": ["id"], "history_partition_by": ["id"]}}, "without a"),
        ({"target": {"table": "shop.orders", "key": ["id"], "exclude_columns": ["id"]}}, "also excluded"),
        ({"target": [{"table": "a.b", "key": ["x"]}, {"table": "a.b", "key": ["x"]}]}, "twice"),
        ({"target": {"table": "shop.lakecdc_quarantine", "key": ["id"]}}, "own tables"),
        ({"target": {"table": "shop.o", "key": ["id"], "history_table": "shop.t_lakecdc_deletes"}}, "own tables"),
        ({"options": {"quarantine_table": "shop.orders"}}, "also a target"),
        ({"options": {"quarantine_table": "{namespace}.{table}"}}, "'shop.orders', which is also a target"),
        ({"options": {"quarantine_table": "shop.{schema}"}}, "options.quarantine_table is 'shop.{schema}'"),
        ({"options": {"quarantine_table": "{table}"}}, "options.quarantine_table is '{table}'"),
        ({"source": {"type": "ftp"}}, "source.type is 'ftp'"),
        ({"source": {"type": "files", "path": "/x"}}, "source.format is missing"),
        ({"tables": ["shop.other"]}, "no target describes"),
    ],
)
def test_wrong_ingest_specs_are_refused(change: dict[str, Any], message: str) -> None:
    assert message in refusal(ingest(**change))


def test_tables_select_targets() -> None:
    targets = [{"table": "shop.a", "key": ["id"]}, {"table": "shop.b", "key": ["id"], "format_version": 3}]
    parsed = parse_spec(ingest(target=targets, tables=["shop.b"]))
    assert [t.format_version for t in parsed.targets] == [3]
    assert isinstance(parsed.source, FilesSource)
    assert parse_spec(ingest(target=targets, tables=[])).tables == ("shop.a", "shop.b")


def test_postgres_source_with_a_password_reference() -> None:
    source = {"type": "postgres", "dsn": "host=db user=etl", "slot": "lake", "password": {"env": "PGPASS"}}
    parsed = parse_spec(ingest(source=source, target={"table": "shop.orders"}))
    assert isinstance(parsed.source, PostgresSource) and parsed.source.publication_name == "lake"


@pytest.mark.parametrize(
    "source",
    [
        {"type": "postgres", "dsn": "host=db password=hunter2", "slot": "s"},
        {"type": "postgres", "dsn": "postgresql://etl:hunter2@db/shop", "slot": "s"},
        {"type": "postgres", "dsn": "postgresql://etl:80/hunter2@db/shop", "slot": "s"},
        {"type": "postgres", "dsn": "host=db sslpassword=hunter2", "slot": "s"},
        {"type": "postgres", "dsn": "host=db", "slot": "s", "password": "hunter2"},
        {"type": "jdbc", "url": "jdbc:mysql://db/shop?passwd=hunter2", "cursor_column": "changed"},
        {
            "type": "kafka",
            "bootstrap_servers": "b:9092",
            "topics": ["t"],
            "format": "json",
            "settings": {"ssl.keystore.key": "hunter2"},
        },
    ],
)
def test_literal_secrets_are_refused_and_not_repeated(source: dict[str, Any]) -> None:
    message = refusal(ingest(source=source, target={"table": "shop.orders"}))
    assert "as a literal" in message and "hunter2" not in message


def test_literal_secrets_of_the_catalog_are_refused() -> None:
    catalog = {"name": "lake", "properties": {"adls.account-key": "hunter2"}}
    message = refusal({**spec(), "catalog": catalog})
    assert "catalog.properties.adls.account-key holds a secret" in message and "hunter2" not in message


def test_columns_and_tables_may_be_named_like_secrets() -> None:
    clean = {
        "rename": {"password": "password_hash"},
        "compute": {"token": "'x'", "secret": "substr(token, 1, 4)"},
        "filter": "password_hash = 'x' AND token=5",
    }
    columns: dict[str, Any] = {"columns": {"token": "string"}, "encodings": {"secret": "base64"}, "clean": clean}
    source = {"type": "kafka", "bootstrap_servers": "b:9092", "format": "json", "topic_pattern": ".*"}
    routed = {**source, "routes": {"shop.tokens": "pg.token"}}
    target = {"table": "shop.tokens", "key": ["id"], **columns}
    (parsed,) = parse_spec(ingest(tables=[], source=routed, target=target)).targets
    assert parsed.columns == {"token": "string"}
    text = {"type": "files", "path": "/a.log", "format": "text", "text": {"pattern": r".*token=(?P<token>\w+)"}}
    assert parse_spec(ingest(source=text)).source


def test_another_job_s_spec_is_refused() -> None:
    assert "This script runs ingest" in refusal(spec(), "ingest")


def test_invalid_json_is_refused() -> None:
    with pytest.raises(SpecError, match="not JSON"):
        loads("{")


def test_a_history_table_is_a_separate_target() -> None:
    target = {"table": "shop.orders", "key": ["id"], "mode": "merge", "merge_mode": "copy-on-write"}
    target |= {"history_table": "shop.orders_history", "history_partition_by": ["days(_lakecdc_source_time)"]}
    (parsed,) = parse_spec(ingest(target={**target, "partition_by": ["country"], "properties": {"a": "b"}})).targets
    history = parsed.history()
    assert (history.table, history.mode, history.key) == ("shop.orders_history", "history", ("id",))
    assert (history.partition_by, history.properties) == (("days(_lakecdc_source_time)",), {})
    assert parsed.keyed and not history.keyed


def test_checks_of_a_target_do_not_apply_to_its_history_table() -> None:
    (parsed,) = parse_spec(ingest(target={**AUDITED, "history_table": "shop.orders_history"})).targets
    assert parsed.publish and parsed.checks
    assert (parsed.history().publish, parsed.history().checks, parsed.history().table_checks) == (None, (), ())


@pytest.mark.parametrize("mode", ["append", "history"])
def test_modes_that_only_append_need_no_key(mode: str) -> None:
    assert parse_spec(ingest(target={"table": "shop.orders", "mode": mode})).targets[0].key == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"options": {"reload": ["shop.order"]}}, "'shop.order', which is not a target"),
        (
            {"options": {"reload": ["*"]}, "source": {"type": "jdbc", "url": "jdbc:sqlite:x", "cursor_column": "c"}},
            "jdbc",
        ),
        (
            {"options": {"reload": ["*"]}, "target": {"table": "shop.orders", "mode": "history"}},
            "would replace its events",
        ),
    ],
)
def test_unsupported_reloads_are_refused(change: dict[str, Any], message: str) -> None:
    source = {"type": "postgres", "dsn": "host=db", "slot": "s"}
    assert message in refusal(ingest(**{"source": source, "target": {"table": "shop.orders"}, **change}))
    parse_spec(
        ingest(
            source=source,
            target={"table": "shop.{table}", "source_tables": ["s.*"]},
            tables=[],
            options={"reload": ["shop.a"]},
        )
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": {"table": "shop.o", "mode": "append"}}, "Its mode is append"),
        ({"source": {"type": "kafka"}}, "one of iceberg, jdbc, mysql, postgres"),
        ({"source": {"type": "iceberg"}}, "compared with itself"),
        ({"source": {"type": "iceberg"}, "target": {"table": "x.{table}", "source_tables": ["s"]}}, "Name each table"),
        ({"options": {"ranges": 0}}, "not 1 to 256"),
        ({"options": {"sample": 0}}, "options.sample is 0.0"),
        ({"options": {"max_wait": -1}}, "not 0 or more"),
        ({"options": {"max_keys": 0}}, "not 1 or more"),
        ({"options": {"repair": True}}, "a source of type 'iceberg' cannot load single rows"),
    ],
)
def test_unsupported_comparisons_are_refused(change: dict[str, Any], message: str) -> None:
    source = {"type": "iceberg", "snapshot": "before"}
    parts = {"source": source, "target": {"table": "shop.orders"}, "tables": []}
    assert parse_spec(spec("reconcile", **parts)).options.fail_on == ("skipped",)
    assert message in refusal(spec("reconcile", **{**parts, **change}))


def test_ingestion_from_iceberg_tables_is_refused() -> None:
    assert "source.type is 'iceberg'" in refusal(ingest(source={"type": "iceberg"}))
