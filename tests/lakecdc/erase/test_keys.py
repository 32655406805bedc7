"""Keys to erase: from tables, files and conditions, with several columns, and before key changes."""

from __future__ import annotations

import base64
import random
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecdc.contract.errors import InputError, SpecError, UnsupportedError
from lakecdc.contract.expiring import EraseRowsOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.erase import job as job_module
from lakecdc.erase.job import erase_rows
from lakecdc.erase.keys import read_keys
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed, PlainHistory
from tests.lakecdc.maintain.support import duckdb_rows, run
from tests.on_demand import on_demand

REMAINING = [(1, "x"), (2, "y")]


@pytest.fixture
def name(lake: Lake) -> str:
    """Create an unfed table with a key of two columns and one row to erase."""
    name = lake.new_name("erased")
    columns = "a bigint NOT NULL, b string NOT NULL, v string"
    lake.sql(f"CREATE TABLE lake.{name} ({columns}) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    lake.sql(f"ALTER TABLE lake.{name} SET IDENTIFIER FIELDS b, a")
    lake.sql(f"INSERT INTO lake.{name} VALUES (1, 'x', 'kept'), (2, 'x', 'gone'), (2, 'y', 'kept')")
    return name


def keys_of(lake: Lake, query: str) -> str:
    name = lake.new_name("keys")
    lake.sql(f"CREATE TABLE lake.{name} USING iceberg AS {query}")
    return name


def place(report: TableReport, kind: str) -> dict[str, object]:
    return {each["place"]: each for each in report.metrics["places"]}[kind]


def test_keys_come_from_files_of_each_kind(lake: Lake, name: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"b": ["x"], "a": [2]}), tmp_path / "keys.parquet")
    (tmp_path / "keys.csv").write_text("b,a\nx,2\n")
    (tmp_path / "keys.json").write_text('{"because": "asked", "b": "x", "a": 2}\n')
    kinds = ("parquet", "csv", "json")
    given = [EraseRowsOptions(keys_uri=f"{tmp_path}/keys.{kind}") for kind in kinds]
    assert len({read_keys(lake.table(name), options, None).digest for options in given}) == 1
    data = Path(lake.table(name).location.removeprefix("file:")) / "data"
    planted = {"other.parquet": "plain", "of-x.parquet": "foreign", "rows.avro": "", "rows.json": '{"a": 2, "b": "x"}'}
    pq.write_table(pa.table({"b": ["x"], "a": [2]}), data / "other.parquet")
    pq.write_table(pa.table({"customer": ["x"]}), data / "of-x.parquet")
    for file in ("rows.avro", "rows.json"):
        (data / file).write_text(planted[file])
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('note' = 'not sure of a = 2, b = x')")
    dry = run(lake, erase_rows, name, keys_uri=f"{tmp_path}/keys.json", dry_run=True)
    unread = ("Airflow's database (XCom, rendered templates)", "event logs of Spark", "documents of jobs")
    assert {*unread} <= {*dry.metrics["out_of_reach"]}
    assert place(dry, "table")["rows"] == 2
    assert place(dry, "table")["files_with_keys"] == dict.fromkeys(("data", "manifests", "metadata", "unreferenced"), 1)
    assert place(dry, "table")["metadata_with_keys"] == ["note"]
    assert sorted(str(text).split(": ")[0] for text in place(dry, "table")["not_decoded"]) == [  # type: ignore[attr-defined]
        "a file whose name may contain a key",
        "rows.avro",
        "rows.json",
    ]
    for file in planted:
        (data / file).unlink()
    lake.sql(f"ALTER TABLE lake.{name} UNSET TBLPROPERTIES ('note')")
    assert len(duckdb_rows(lake, name)) == 3

    done = run(lake, erase_rows, name, keys_uri=f"{tmp_path}/keys.csv")
    assert (done.outcome, done.metrics["rows_erased"]) == ("done", 1), done.reason
    assert duckdb_rows(lake, name, "a, b") == REMAINING
    assert not [file for file in data.parent.rglob("*.metadata.json") if "not sure of" in file.read_text()]


def test_invalid_keys_are_refused_and_not_shown(lake: Lake, name: str, tmp_path: Path) -> None:
    for file, text, message in (
        ("typed.csv", "b,a\nx,seven\n", "a row without a value of the key's type"),
        ("empty.csv", "b,a\nx,\n", "a row without a value of the key's type"),
        ("short.csv", "b\nx\n", "no column 'a'"),
        ("keys.xlsx", "", "ends with 'xlsx'"),
    ):
        (tmp_path / file).write_text(text)
        with pytest.raises(InputError, match=message) as refused:
            run(lake, erase_rows, name, keys_uri=f"{tmp_path}/{file}")
        assert "seven" not in str(refused.value)
    # no row is erased by default
    with pytest.raises(SpecError, match="No option names the keys to erase"):
        run(lake, erase_rows, name)


@pytest.mark.parametrize("moment", on_demand(("expire_all", "examine"), in_ci=("expire_all",)))
def test_an_interrupted_erasure_by_condition_is_finished_by_its_keys(
    lake: Lake, name: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def killed(*_: object) -> int:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(job_module, moment, killed)
        with pytest.raises(RuntimeError, match="killed"):
            run(lake, erase_rows, name, condition="v = 'gone'")
    assert duckdb_rows(lake, name, "a, b") == REMAINING
    with pytest.raises(InputError, match="has not finished") as refused:
        run(lake, erase_rows, name, condition="v = 'gone'")
    before = re.findall(r"VERSION AS OF (\d+)", str(refused.value))
    keys = keys_of(lake, "SELECT 2L AS a, 'x' AS b")
    if moment == "expire_all":
        keys = keys_of(lake, f"SELECT a, b FROM lake.{name} VERSION AS OF {before[0]} WHERE v = 'gone'")
    assert bool(before) == (moment == "expire_all")
    done = run(lake, erase_rows, name, keys_table=keys)
    assert done.metrics["keys"] == 1 and not done.metrics["files_with_keys"], done.reason
    assert [snapshot.id for snapshot in lake.table(name).ancestors()] == [int(str(done.snapshot_after))]
    assert run(lake, erase_rows, name, condition="v = 'gone'").outcome == "nothing"


@pytest.mark.soak
def test_a_table_partitioned_by_its_key_is_refused(lake: Lake, name: str) -> None:
    lake.sql(f"ALTER TABLE lake.{name} ADD PARTITION FIELD a")
    lake.sql(f"ALTER TABLE lake.{name} ADD PARTITION FIELD truncate(20, b)")
    given = {"keys_table": keys_of(lake, "SELECT 2L AS a, 'x' AS b"), "dry_run": True}
    assert run(lake, erase_rows, name, **given).outcome == "nothing", "no file has these partitions yet"
    lake.sql(f"INSERT INTO lake.{name} VALUES (2, 'z', 'kept')")
    with pytest.raises(UnsupportedError, match="partitions by a, b"):
        run(lake, erase_rows, name, **given)


def test_keys_are_erased_from_further_tables(lake: Lake, name: str) -> None:
    further = lake.new_name("further")
    lake.sql(f"CREATE TABLE lake.{further} (a int, b string) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    lake.sql(f"INSERT INTO lake.{further} VALUES (2, 'x'), (2, 'z'), (null, 'x')")
    keys = keys_of(lake, "SELECT 2L AS a, 'x' AS b UNION ALL SELECT 1099511627776L, 'x'")
    given = {"keys_table": keys, "further_tables": {name: [further]}}
    done = run(lake, erase_rows, name, **given)
    assert done.outcome == "done", done.reason
    assert (place(done, "further")["rows_erased"], place(done, "table")["rows_erased"]) == (1, 1)
    assert sorted(lake.duckdb_rows(further), key=str) == [(2, "z"), (None, "x")]
    lake.sql(f"ALTER TABLE lake.{further} DROP COLUMN b")
    with pytest.raises(InputError, match="no column 'b' of the key"):
        run(lake, erase_rows, name, **given)


def test_nothing_is_dropped_without_approval(lake: Lake, name: str, tmp_path: Path) -> None:
    lake.sql(f"ALTER TABLE lake.{name} CREATE TAG old")
    given = {"condition": "v = 'gone'", "drop_refs": ["*"]}
    spec = parse_spec(lake.spec("erase_rows", name, options={**given, "dry_run": True}))
    dry = erase_rows(lake.table(name), replace(spec, documents=f"file://{tmp_path}")).metrics
    assert f"old of {name}" in dry["drops"]
    approved = {name: dry["findings"]}
    lake.sql(f"ALTER TABLE lake.{name} CREATE BRANCH later")
    with pytest.raises(InputError, match=f"Dropping later of {name} has not been approved"):
        run(lake, erase_rows, name, **given, approved=approved)
    with pytest.raises(InputError, match="Its key_digest is"):
        run(lake, erase_rows, name, condition="v = 'kept'", drop_refs=["old"], approved=approved)
    assert len(duckdb_rows(lake, name)) == 3
    lake.sql(f"ALTER TABLE lake.{name} DROP BRANCH later")
    assert run(lake, erase_rows, name, **given, approved=approved).outcome == "done"
    assert duckdb_rows(lake, name, "a, b") == REMAINING


def test_key_change_events_stay_without_the_erased_key(lake: Lake, tmp_path: Path) -> None:
    name = lake.new_name("moved")
    log = f"{name}_history"
    feed, source = Feed(lake, tmp_path, {"history_table": log}, table=name), PlainHistory(random.Random(5))
    for key in (1, 7001):
        source.insert(key)
    feed.take(source.events)
    seen = len(source.events)
    source.change_key(7001, 8)
    feed.take(source.events[seen:])
    columns = "_lakecdc_op, id, _lakecdc_old_key"
    assert ("c", 8, '{"id":7001}') in feed.rows(log, columns)

    done = run(lake, erase_rows, name, keys_table=keys_of(lake, "SELECT 7001L AS id"), history_tables={name: log})
    assert done.outcome == "done", done.reason
    assert feed.rows(log, columns) == [("c", 1, None), ("c", 8, None)]
    assert feed.rows(columns="id") == [(1,), (8,)]
    folder = Path(lake.table(log).location.removeprefix("file:"))
    texts = [text for file in folder.rglob("*.parquet") for text in pq.read_table(file)["_lakecdc_old_key"].to_pylist()]
    assert texts and not any(texts)


def test_composite_keys_match_in_the_order_of_the_source(lake: Lake, tmp_path: Path) -> None:
    name = lake.new_name("composite")
    log, quarantine = f"{name}_history", f"{name}_waiting"
    # in the opposite order of the table's columns
    target = {"key": ["name", "id"], "history_table": log}
    options = {"quarantine_table": quarantine, "max_quarantined_fraction": 1.0}
    feed, source = Feed(lake, tmp_path, target, table=name, options=options), PlainHistory(random.Random(7))
    for key in (1, 7001):
        source.insert(key)
    first = list(source.events)
    feed.take(first)
    for key in (2, 7002):
        source.insert(key)
    broken = source.events[-1]["value"]["after"]
    broken["n"] = "not a number"
    source.insert(4)
    # of an unknown row, and with the key in another spelling
    encoded = {"op": "z", "after": {"id": base64.b64encode((7001).to_bytes(2)).decode(), "name": "?"}}
    unknown = {**source.events[-1], "offset": 99, "key": None, "value": encoded}
    read = [*source.events, unknown]
    feed.take(read[len(first) :])

    going = f"SELECT id, name FROM lake.{name} WHERE id = 7001 UNION ALL SELECT 7002L, '{broken['name']}'"
    given = {"history_tables": {name: log}, "quarantine_table": quarantine, "keys_table": keys_of(lake, going)}
    with pytest.raises(InputError, match=f"whether 2 messages in {quarantine} are about"):
        run(lake, erase_rows, name, **given)
    lake.sql(f"DELETE FROM lake.{quarantine} WHERE row_key IS NOT NULL")
    with pytest.raises(InputError, match=f"whether 1 messages in {quarantine} are about"):
        run(lake, erase_rows, name, **given)
    lake.sql(f"DELETE FROM lake.{quarantine}")
    done = run(lake, erase_rows, name, **given)
    assert done.outcome == "done", done.reason
    # late events do not restore the row
    source.insert(3)
    source.insert(7002)
    source.events[-1]["value"]["after"]["n"] = "not a number either"
    feed.take([*read, *source.events[-2:]])
    assert feed.rows(columns="id") == feed.rows(log, "id") == [(1,), (2,), (3,), (4,)]
    # nor do they enter the quarantine, except for the newest message about an erased key
    quarantined = feed.rows(quarantine, '"offset", rule, row_key IS NULL, raw_value IS NULL, withheld')
    assert quarantined == [
        (source.events[-1]["offset"], "type", False, False, None),
        (99, "unknown-message", True, True, True),
    ]
