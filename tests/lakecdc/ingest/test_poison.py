"""Messages that might crash a decoder are quarantined one by one, and their neighbours are applied."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from tests.conftest import Lake
from tests.lakecdc.ingest.by_spark import ENGINES, both_engines

DEEP = 10_000


def good(number: int, **values: Any) -> str:
    source = {"connector": "postgresql", "schema": "s", "table": "t", "lsn": number + 1, "ts_ms": 5}
    return json.dumps({"op": "c", "before": None, "after": {"id": number, "v": "x", **values}, "source": source})


def with_schema(schema: str, number: int) -> str:
    return f'{{"schema":{schema},"payload":{good(number)}}}'


#: messages by the rule they break; None for messages that are applied
POISON = [
    ("not-json", good(1000).replace('"x"', "[" * DEEP + "]" * DEEP)),
    ("not-json", good(1001).replace('"x"', '{"a":' * DEEP + "1" + "}" * DEEP)),
    ("not-json", '{"op":"c","after":' + "[" * DEEP),
    ("not-json", "[" * DEEP + "]" * DEEP),
    ("not-json", with_schema("[" * DEEP + "]" * DEEP, 1002)),
    ("not-json", good(1003).replace('"x"', '"\0"')),
    ("bad-name", good(1005, **{"\0": 1})),
    ("bad-name", good(1006, **{"a\0b": None})),
    ("bad-name", good(1007, **{"": 1})),
    (None, good(2000).replace('"x"', '"\\u0000"')),
    (None, good(2001).replace('"x"', "[" * 900 + "]" * 900)),
    (None, good(2002).replace('"x"', '""')),
    (None, with_schema('{"fields":"x"}', 2003)),
    (None, with_schema('{"type":"struct","fields":[{"field":"after","fields":[{"type":"int32"}]}]}', 2004)),
    (None, with_schema('"x"', 2005)),
    (None, with_schema("7", 2006)),
    # a text column keeps each digit
    (None, good(2007).replace('"x"', "1" * 2000)),
]


def take(lake: Lake, folder: Path, name: str) -> TableReport:
    source = {"type": "files", "path": f"{folder}/*", "format": "debezium-json"}
    options = {"max_quarantined_fraction": 1.0, "quarantine_table": f"{name}_kept"}
    target = {"table": name, "key": ["id"], "source_table": "s.t"}
    spec = lake.spec("ingest", source=source, target=target, options=options)
    report = run(parse_spec(spec), ingest)
    assert not report.error, report.error
    assert report.tables[0].outcome == "done", report.tables[0].reason
    return report.tables[0]


@both_engines
def test_poisoned_json_is_quarantined(lake: Lake, tmp_path: Path, engine: str) -> None:
    name = lake.new_name("poisoned")
    first, last = [good(n) for n in range(20)], [good(n) for n in range(20, 40)]
    (tmp_path / "0.jsonl").write_text("\n".join([*first, *(text for _, text in POISON), *last]))
    take(lake, tmp_path, name)
    quarantined = lake.duckdb_rows(f"{name}_kept", "rule, raw_value")
    assert sorted(quarantined) == sorted((rule, text.encode()) for rule, text in POISON if rule)
    applied = [json.loads(text).get("payload", json.loads(text))["after"]["id"] for rule, text in POISON if not rule]
    assert sorted(i for (i,) in lake.duckdb_rows(name, "id")) == [*range(40), *applied]
    assert lake.table(name).column_names[:2] == ["id", "v"]
    # and a first message of this kind defines no columns for later messages
    (tmp_path / "1.jsonl").write_text("\n".join([good(3000, **{"": 1}), good(3001)]))
    take(lake, tmp_path, name)
    assert len(lake.duckdb_rows(f"{name}_kept", "rule")) == len(quarantined) + 1


@pytest.mark.soak
@both_engines
def test_a_line_without_end_fails_its_table_and_names_the_file(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setattr("lakecdc.ingest.engine.pieces._CHUNK", 1000)
    monkeypatch.setattr("lakecdc.ingest.engine.pieces._LONGEST_LINE", 9_000_000)
    name, bad = lake.new_name("poisoned"), tmp_path / "1.jsonl.gz"
    with gzip.open(bad, "wb", 1) as file:
        file.write(good(1).encode() + b"\n" + b" " * 20_000_000)
    with pytest.raises(AssertionError, match=rf"The file {bad} has a line of more than 9000000 bytes"):
        take(lake, tmp_path, name)
    bad.unlink()
    (tmp_path / "2.jsonl").write_text(good(2))
    take(lake, tmp_path, name)
    assert lake.duckdb_rows(name, "id") == [(2,)]


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_a_line_of_two_gigabytes_is_refused(lake: Lake, tmp_path: Path, engine: str) -> None:
    with gzip.open(tmp_path / "1.jsonl.gz", "wb", 1) as file:
        for _ in range(2200):
            file.write(b"x" * 1_000_000)
    with pytest.raises(AssertionError, match="has a line of more than 67108864 bytes"):
        take(lake, tmp_path, lake.new_name("poisoned"))
