"""Names of a source are data: no name becomes part of a statement, and none is refused for its characters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from lakecdc.sql import quoted, temporary_view
from tests.conftest import Lake
from tests.lakecdc.ingest.by_spark import both_engines
from tests.lakecdc.ingest.sources.files.conftest import Fed
from tests.on_demand import on_demand

# a struct's member that would end the column list and start the rest of the statement
EVIL = "x:int>) USING iceberg LOCATION 'file:///tmp/lakecdc-elsewhere' --"
ODD = ["order-line", "a b", "c.d", "tick`s", "it's", 'say "so"', "Zeile\n2", "back\\slash", "end", EVIL]
# paths of Spark's variants cannot name some of these
JSON_ODD = [*ODD, "what?", " blank", "[0]", "$", "a]b", "{}", "%s", "1st", "日本"]


@pytest.fixture
def fed(lake: Lake, tmp_path: Path) -> Fed:
    (tmp_path / "in").mkdir()
    return Fed(lake, tmp_path / "in")


def test_members_of_parquet_structs_keep_their_names(fed: Fed) -> None:
    def write(name: str, first: int, *, more: bool = False) -> None:
        members = {member: n for n, member in enumerate(ODD)}
        kind = pa.struct([(member, pa.int32()) for member in ODD])
        rows = [{"id": i, "s": members, "l": [members], "m": {"k": members}} for i in (first, None)[: 1 + more]]
        fields = [("id", pa.int64()), ("s", kind), ("l", pa.list_(kind)), ("m", pa.map_(pa.string(), kind))]
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), fed.folder / name)

    fed.source = {"format": "parquet"}
    write("a.parquet", 1, more=True)
    fed.run()
    assert fed.lake.table(fed.name).location.startswith(f"file://{fed.lake.folder}")
    write("b.parquet", 2)
    fed.run()
    rows = fed.lake.table(fed.name).read().select("id", "s", "l", "m").orderBy("id").collect()
    assert [row["id"] for row in rows] == [1, 2]
    for row in rows:
        for struct in (row["s"], row["l"][0], row["m"]["k"]):
            assert struct.asDict() == {member: n for n, member in enumerate(ODD)}
    # the row without a key is JSON
    corrected = 'cast(replace(cast(raw_value AS string), \'{"s":\', \'{"id":3,"s":\') AS binary)'
    fed.lake.sql(f"UPDATE {quoted('lake.' + fed.quarantine)} SET raw_value = {corrected}")
    fed.run("replay_quarantine")
    third = fed.lake.table(fed.name).read(where="id = 3").collect()[0]
    assert third["s"].asDict() == {member: n for n, member in enumerate(ODD)} and third["l"][0]["c.d"] == 2


@pytest.mark.soak
def test_members_of_nested_xml_keep_their_names(fed: Fed) -> None:
    fed.source = {"format": "xml", "xml": {"row_tag": "b"}}
    nested = '<b _n="1"><id>{}</id><order-line><x.y>{}</x.y><of-all>{}</of-all></order-line></b>'
    fed.write("a.xml", "<bs>" + nested.format(1, "p", "q") + "</bs>")
    fed.run()
    fed.write("b.xml", "<bs>" + nested.format(2, "r", "s") + "</bs>")
    fed.run()
    rows = fed.lake.table(fed.name).read().select("id", "order-line").orderBy("id").collect()
    assert [(i, struct.asDict()) for i, struct in rows] == [
        ("1", {"x.y": "p", "of-all": "q"}),
        ("2", {"x.y": "r", "of-all": "s"}),
    ]


@both_engines
def test_columns_and_members_of_json_keep_their_names(lake: Lake, tmp_path: Path, engine: str) -> None:
    name = lake.new_name("odd")
    target: dict[str, Any] = {"table": name, "key": ["id"], "source_table": "t"}
    row = {member: f"{n}" for n, member in enumerate(JSON_ODD)}
    for lsn in (1, 2):
        event = {"op": "c", "before": None, "after": {"id": lsn, **row}}
        event["source"] = {"connector": "postgresql", "schema": "s", "table": "t", "lsn": lsn, "ts_ms": lsn}
        (tmp_path / f"{lsn}.jsonl").write_text(json.dumps(event))
        take(lake, tmp_path, target)
    rows = lake.table(name).read().orderBy("id").collect()
    assert [r["id"] for r in rows] == [1, 2]
    for r in rows:
        assert {member: r[member] for member in JSON_ODD} == row


@pytest.mark.parametrize("mode", on_demand(("upsert", "merge"), in_ci=("upsert",)))
def test_a_table_name_may_contain_a_backtick(lake: Lake, tmp_path: Path, mode: str) -> None:
    name = f"{lake.new_name('ti')}`ck"
    target = {"table": name, "source_table": "t", "key": ["id"], "mode": mode, "columns": {"n": "int"}}
    target["history_table"] = f"{name}_history"
    for lsn, n in enumerate([1, "x", 3], 1):
        event = {"op": "u", "before": None, "after": {"id": 1, "n": n}}
        event["source"] = {"connector": "postgresql", "schema": "s", "table": "t", "lsn": lsn, "ts_ms": lsn}
        (tmp_path / f"{lsn}.jsonl").write_text(json.dumps(event))
        if lsn > 1:
            take(lake, tmp_path, target)
    assert lake.table(name).read(columns=["id", "n"]).collect() == [(1, 3)]
    assert lake.table(f"{name}_history").read().count() == 2
    view = quoted(f"lake.{name}_view")
    assert lake.sql(f"SELECT id, n FROM {view}").collect() == [(1, 3)]


def test_views_of_frames_never_share_a_name(lake: Lake) -> None:
    with temporary_view(lake.spark.range(1)) as one, temporary_view(lake.spark.range(2)) as two:
        counts = [lake.sql(f"SELECT count(*) FROM {view}").collect()[0][0] for view in (one, two)]
    assert counts == [1, 2] and not lake.sql("SHOW VIEWS LIKE 'lakecdc_*'").collect()


def take(lake: Lake, folder: Path, target: dict[str, Any]) -> TableReport:
    source = {"type": "files", "path": f"{folder}/*.jsonl", "format": "debezium-json"}
    options = {"max_quarantined_fraction": 1.0}
    report = run(parse_spec(lake.spec("ingest", source=source, target=target, options=options)), ingest)
    assert not report.error, report.error
    assert report.tables[0].outcome in ("done", "nothing"), report.tables[0].reason
    return report.tables[0]
