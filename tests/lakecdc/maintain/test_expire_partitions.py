"""Old rows are removed by metadata alone where possible, and leave a floor that ingestion honours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.errors import InputError, SpecError, UnsupportedError
from lakecdc.contract.spec import parse_spec
from lakecdc.maintain.expire_partitions import expire_partitions
from lakecdc.metadata.floor import Floor
from lakecdc.metadata.names import EXPIRED_BELOW
from local_services.spark_classes import INTERPRETED
from tests.conftest import Lake
from tests.lakecdc.ingest.test_cleaning import Fed, event
from tests.lakecdc.maintain.support import create, head, live_files, meanwhile, metadata_location, run
from tests.on_demand import on_demand

BELOW = {"time_column": "at", "older_than": "2024-01-04"}


def make(lake: Lake, kind: str, partitioned_by: str = "", **properties: str) -> str:
    """Create a table of the first six days of 2024, three rows a day, and a row without a time."""
    name = create(lake, 3, partitioned_by, f"id bigint NOT NULL, at {kind}, n int", **properties)
    lake.sql(
        f"INSERT INTO lake.{name} SELECT id, CAST(if(id < 18, timestamp'2024-01-01 05:00' + make_dt_interval("
        f"CAST(id AS int) div 3, CAST(id AS int) % 3 * 9), null) AS {kind}), 1 FROM range(0, 19, 1, 1)"
    )
    return name


def add(lake: Lake, name: str, *rows: tuple[int, str | None]) -> None:
    """Append one file."""
    values = ", ".join(f"({id}, {repr(at) if at else 'NULL'})" for id, at in rows)
    kind = next(f.type for f in lake.table(name).fields if f.name == "at")
    spark = {"timestamptz": "timestamp", "timestamp": "timestamp_ntz"}.get(kind, kind)
    lake.sql(
        f"INSERT INTO lake.{name} SELECT /*+ COALESCE(1) */ CAST(id AS bigint), CAST(at AS {spark}), 1 "
        f"FROM VALUES {values} AS v(id, at)"
    )


def ids(lake: Lake, name: str) -> set[int]:
    """Return the ids that DuckDB reads."""
    return {int(id) for (id,) in lake.duckdb_rows(name, "id")}


def floor(lake: Lake, name: str) -> str | None:
    text = lake.pyiceberg().load_table(name).properties.get(EXPIRED_BELOW)
    return json.loads(text)["below"] if text else None


_WHOLE = [("timestamp", "days(at), bucket(2, id)", "none"), ("date", "at", "truncate(16)")]


@pytest.mark.parametrize(
    ("kind", "partitioned_by", "metrics"),
    on_demand(_WHOLE, in_ci=_WHOLE[:1]),
)
def test_whole_partitions_are_removed_and_leave_a_floor(
    lake: Lake, kind: str, partitioned_by: str, metrics: str
) -> None:
    name = make(lake, kind, partitioned_by, write__metadata__metrics__default=metrics)
    files, location = live_files(lake, name), metadata_location(lake, name)
    dry = run(lake, expire_partitions, name, **BELOW, max_partitions=2, dry_run=True)
    assert (dry.outcome, metadata_location(lake, name)) == ("nothing", location)
    report = run(lake, expire_partitions, name, **BELOW, max_partitions=2)
    assert (report.outcome, report.reason) == ("done", "1 more partitions are left for later runs")
    expected: dict[str, Any] = {
        "partitions_removed": 2,
        "partitions_left": 1,
        "rows_removed": 6,
        "mixed_files": 0,
        "floor_before": None,
    }
    expected |= {"floor_after": "2024-01-03T00:00:00+00:00", "cutoff": "2024-01-04T00:00:00+00:00"}
    for metrics_of in (dry.metrics, report.metrics):
        assert metrics_of.items() >= expected.items()
    assert report.metrics["data_files_removed"] == len(files - live_files(lake, name)) > 1
    assert report.metrics["bytes_removed"] == dry.metrics["bytes_removed"] > 0
    # no file was written, and the floor came with the snapshot
    assert live_files(lake, name) < files
    stored = lake.pyiceberg().load_table(name)
    assert [entry.metadata_file.replace("file://", "file:") for entry in stored.metadata.metadata_log][-1:] == [
        location.replace("file://", "file:")
    ]
    assert floor(lake, name) == "2024-01-03T00:00:00+00:00"
    assert ids(lake, name) == {*range(6, 19)}
    report = run(lake, expire_partitions, name, **BELOW)
    assert (
        report.metrics.items() >= {"floor_before": expected["floor_after"], "floor_after": expected["cutoff"]}.items()
    )
    assert ids(lake, name) == {*range(9, 19)}
    assert run(lake, expire_partitions, name, **BELOW).outcome == "nothing"
    # a floor never moves back
    add(lake, name, (100, "2024-01-01"))
    report = run(lake, expire_partitions, name, time_column="at", older_than="2024-01-02")
    assert (report.outcome, floor(lake, name)) == ("done", expected["cutoff"])


@pytest.fixture
def compiled(lake: Lake) -> Iterator[None]:
    """Have Spark compile queries: interpreted ones read each TIMESTAMP_NTZ of Iceberg's metadata tables as null."""
    lake.spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    yield
    lake.spark.conf.set("spark.sql.codegen.factoryMode", INTERPRETED["spark.sql.codegen.factoryMode"])


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("kind", ["timestamp", pytest.param("timestamp_ntz", marks=pytest.mark.soak)])
def test_files_with_remaining_rows_are_read_only_with_permission(lake: Lake, kind: str) -> None:
    name = make(lake, kind)
    before = head(lake, name)
    with pytest.raises(UnsupportedError, match="allow_row_deletes"):
        run(lake, expire_partitions, name, **BELOW)
    assert (head(lake, name), floor(lake, name)) == (before, None)
    add(lake, name, (20, "2023-12-01"), (21, "2023-12-02"))
    files = live_files(lake, name)
    report = run(lake, expire_partitions, name, **BELOW)
    assert report.outcome == "done" and "1 files stay, because they have rows" in str(report.reason)
    # the remaining file begins on the first of January
    assert floor(lake, name) == "2024-01-01T00:00:00+00:00"
    assert ids(lake, name) == {*range(19)}
    rows = {"allow_row_deletes": True}
    dry = run(lake, expire_partitions, name, **BELOW, **rows, dry_run=True)
    report = run(lake, expire_partitions, name, **BELOW, **rows)
    assert dry.metrics["rows_removed"] == report.metrics["rows_removed"] == 9
    assert (report.outcome, report.reason, floor(lake, name)) == ("done", None, "2024-01-04T00:00:00+00:00")
    assert ids(lake, name) == {*range(9, 19)}
    # by a deletion vector, according to the table's write.delete.mode
    assert live_files(lake, name) - files and not {f for f in live_files(lake, name) - files if f.endswith(".parquet")}
    assert lake.table(name).java.refs().keySet().size() == 1
    assert run(lake, expire_partitions, name, **BELOW, **rows).outcome == "nothing"


@pytest.mark.parametrize("moment", on_demand(("before_expiry", "before_commit"), in_ci=("before_commit",)))
def test_rows_committed_meanwhile_are_kept(lake: Lake, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    name = make(lake, "timestamp", "days(at)")
    lake.sql(f"ALTER TABLE lake.{name} DROP PARTITION FIELD days(at)")
    rows, act = {}, [(30, "2024-01-03 20:00:00"), (31, "2024-01-05")]
    if moment == "before_commit":
        add(lake, name, (20, "2024-01-01 01:00:00"), (21, "2024-01-09"))
        rows, act = {"allow_row_deletes": True}, [(30, "2024-01-05")]
    meanwhile(monkeypatch, moment, lambda: add(lake, name, *act))
    report = run(lake, expire_partitions, name, **BELOW, **rows)
    assert (report.outcome, report.metrics["retries"]) == ("done", 1)
    # files that cannot be separated from the new file stay with it
    remaining = {*range(9, 19), 21, 30} if rows else {*range(6, 19), 30, 31}
    assert ids(lake, name) == remaining


def test_concurrent_runs_never_move_the_floor_back(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = make(lake, "timestamp", "days(at)")
    later = {"time_column": "at", "older_than": "2024-01-05"}

    def act() -> None:
        assert run(lake, expire_partitions, name, **later).outcome == "done"

    meanwhile(monkeypatch, "before_expiry", act)
    assert run(lake, expire_partitions, name, **BELOW).outcome == "nothing"
    assert floor(lake, name) == "2024-01-05T00:00:00+00:00"


def test_age_is_counted_in_whole_days(lake: Lake) -> None:
    name = create(lake, 2, columns="id bigint NOT NULL, at timestamp, n int")
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=9)
    for id, moment in enumerate((midnight - timedelta(microseconds=1), midnight)):
        add(lake, name, (id, moment.isoformat()))
    report = run(lake, expire_partitions, name, time_column="at", max_age=9 * 24 * 3600)
    assert report.metrics["floor_after"] == midnight.isoformat()
    assert ids(lake, name) == {1}


def test_wrong_expiries_are_refused(lake: Lake) -> None:
    name = make(lake, "timestamp")
    lake.table(name).update_properties({EXPIRED_BELOW: Floor(1, "id", datetime(2020, 1, 1, tzinfo=UTC)).encode()})
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"max_age": 1.0}, SpecError, "time_column"),
        ({"time_column": "at"}, SpecError, "older_than"),
        ({"time_column": "at", "older_than": "2999-01-01"}, SpecError, "in the future"),
        ({"time_column": "nowhere", "max_age": 1.0}, InputError, "column 'nowhere' does not exist"),
        ({"time_column": "n", "max_age": 1.0}, InputError, "of type int"),
        ({"time_column": "at", "max_age": 1.0}, InputError, "expired by 'id'"),
    ]
    for options, error, message in wrong:
        with pytest.raises(error, match=message):
            run(lake, expire_partitions, name, **options)
    lake.sql(f"CREATE TABLE lake.{name}_lakecdc_deletes (at timestamp) USING iceberg")
    with pytest.raises(UnsupportedError, match="own tables"):
        run(lake, expire_partitions, f"{name}_lakecdc_deletes", **BELOW)


def test_ingestion_skips_expired_rows(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, columns={"id": "bigint", "at": "timestamp"})
    old, new = "2024-01-01T00:00:00Z", "2024-02-01T00:00:00Z"
    for lsn, at in ((1, old), (2, new)):
        fed.done(event(lsn, "c", {"id": lsn, "at": at}))
    name = fed.target["table"]
    assert run(lake, expire_partitions, name, **BELOW).metrics["rows_removed"] == 1
    done = fed.done(event(3, "u", {"id": 1, "at": old}), event(4, "c", {"id": 3, "at": new}))
    assert done["rows_below_floor"] == 1
    assert ids(lake, name) == {2, 3}
    fed.done(event(5, "u", {"id": 1, "at": new}))
    assert ids(lake, name) == {1, 2, 3}


def test_only_approved_partitions_expire(lake: Lake, tmp_path: Path) -> None:
    name = make(lake, "timestamp", "days(at)")

    def dry(**options: Any) -> dict[str, Any]:
        spec = parse_spec(lake.spec("expire_partitions", name, options={**BELOW, "dry_run": True, **options}))
        return expire_partitions(lake.table(name), replace(spec, documents=f"file://{tmp_path}")).metrics

    planned = dry(max_partitions=2)
    assert (planned["oldest"], planned["partitions_removed"]) == ("2024-01-01T05:00:00+00:00", 2)
    approved = {name: planned["findings"]}
    with pytest.raises(InputError, match="have not been approved"):
        run(lake, expire_partitions, name, **BELOW, approved={"a.b": planned["findings"]})
    with pytest.raises(InputError, match=r"allow_row_deletes is True.*have its list approved"):
        run(lake, expire_partitions, name, **BELOW, allow_row_deletes=True, approved=approved)
    # by now more would expire, and some already has
    assert run(lake, expire_partitions, name, time_column="at", older_than="2024-01-02").outcome == "done"
    done = run(lake, expire_partitions, name, time_column="at", older_than="2024-01-06", approved=approved)
    assert (done.outcome, done.metrics["floor_after"]) == ("done", "2024-01-03T00:00:00+00:00")
    assert ids(lake, name) == {*range(6, 19)}
    assert run(lake, expire_partitions, name, **BELOW, approved=approved).outcome == "nothing"
    (document,) = tmp_path.iterdir()
    document.write_text(document.read_text().replace("2024-01-03", "2024-01-05"))
    with pytest.raises(InputError, match="not the approved one"):
        run(lake, expire_partitions, name, **BELOW, approved=approved)
    assert ids(lake, name) == {*range(6, 19)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_age": -1.0}, "max_age is -1.0"),
        ({"max_age": 1.0, "older_than": "2024-01-01"}, "both set"),
        ({"older_than": "yesterday"}, "older_than is 'yesterday'"),
        ({"max_partitions": 0}, "max_partitions is 0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    document = {"version": 1, "job": "expire_partitions", "tables": ["a.b"], "options": options}
    catalog = {"name": "lake", "properties": {"type": "rest", "uri": "https://catalog.example.com"}}
    with pytest.raises(SpecError, match=message):
        parse_spec({**document, "catalog": catalog}, "expire_partitions")
