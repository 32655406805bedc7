"""The last event of each key remains, with the counts of all, however files are cut into tasks."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakecdc.ingest.engine import facts, packing, pieces, tasks
from lakecdc.ingest.engine.facts import Facts
from lakecdc.ingest.engine.fold import grouping
from lakecdc.ingest.engine.packing import UnpackTask, rows_of_cells
from lakecdc.ingest.engine.tasks import Buffering, DecodeTask, FoldTask
from lakecdc.ingest.formats.values import Field
from lakecdc.model.order import Marks, order_key
from tests.lakecdc.ingest.engine.decodings import decoding_of

FIELDS = (Field("id", "bigint"), Field("v", "string"), Field("n", "decimal(9,2)"))
NEW = Marks()
ONE_GROUP = grouping([], ["id"], ["bigint"], 1)
DECODING = decoding_of(FIELDS)


def event(lsn: int, op: str, row: dict[str, Any]) -> dict[str, Any]:
    source = {"connector": "postgresql", "schema": "s", "table": "t", "lsn": lsn, "ts_ms": 5}
    return {"op": op, "before": row if op == "d" else None, "after": None if op == "d" else row, "source": source}


def files(folder: Path, events: list[dict[str, Any]], count: int = 2) -> dict[str, int]:
    numbers = {}
    for number in range(count):
        path = folder / f"{number}.jsonl"
        path.write_text("".join(json.dumps(e) + "\n" for e in events[number::count]))
        numbers[path.as_uri()] = number
    return numbers


def run(numbers: dict[str, int], cuts: int, *, folded: bool = True, marks: Marks = NEW) -> tuple[list[Any], Facts]:
    """Run the tasks as Spark does."""
    planned = pieces.plan(numbers, cuts, 1 << 40)
    assert planned is not None
    alone = len(planned[0].tasks) == 1
    groups = grouping(["bucket(3, id)"], ["id"], ["bigint"], 1) if folded else None
    decode = DecodeTask(DECODING, planned[0], Buffering.of(DECODING, groups, marks, every=not folded, alone=alone))
    inputs = [pa.RecordBatch.from_arrays([pa.array([n])], ["id"]) for n in range(len(planned[0].tasks))]
    rows = [row for one in inputs for row in decode([one])]
    if folded and not alone:
        of_group = {row["grp"][0].as_py(): [] for row in rows}  # type: ignore[var-annotated]
        for row in rows:
            of_group[row["grp"][0].as_py()].append(row)
        rows = [row for group in of_group.values() for row in FoldTask(1, ("id", "v", "n"))(group)]
    reported = facts.merged(facts.from_json(row["facts"][0].as_py()) for row in rows if row["facts"][0].is_valid)
    unpacked = [r for row in rows for r in UnpackTask(("id", "v", "n"), ("id",), "rcud")([row.select(["packed"])])]
    return [row for batch in unpacked for row in batch.to_pylist()], reported


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut and hand on everything far earlier than with real files."""
    monkeypatch.setattr(pieces, "_SMALLEST", 1)
    monkeypatch.setattr(pieces, "_CHUNK", 700)
    monkeypatch.setattr(tasks, "_MANY_ROWS", 20)
    monkeypatch.setattr(tasks, "_MANY_KEYS", 12)
    monkeypatch.setattr(packing, "_CELL", 600)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("cuts", [1, 2, 5])
@pytest.mark.parametrize("uneven", [False, True])
def test_the_last_event_of_each_key_remains_with_counts(tmp_path: Path, cuts: int, uneven: bool) -> None:
    rng, events = random.Random(cuts), []
    last: dict[int, tuple[int, str, dict[str, Any]]] = {}
    counts = dict.fromkeys("cud", 0)
    lsns = list(range(1, 201))
    rng.shuffle(lsns)
    for lsn in lsns:
        op, key = rng.choice("cud"), rng.randrange(30)
        row = {"id": key, "v": f"é{lsn}", "n": lsn + 0.25}
        if uneven and lsn % 50 == 0:
            del row["n"]
        events.append(event(lsn, op, row))
        counts[op] += 1
        if key not in last or lsn > last[key][0]:
            last[key] = (lsn, op, row)
    rows, reported = run(files(tmp_path, events), cuts)
    assert reported.odd is None and {op: reported.events[op] for op in counts} == counts
    assert (reported.keys, reported.deletes) == (len(last), sum(op == "d" for _, op, _ in last.values()))
    assert sorted(row["key"]["id"] for row in rows) == sorted(last)
    for row in rows:
        lsn, op, image = last[row["key"]["id"]]
        assert row["op"] == op and row["order"].startswith(order_key(1, lsn, lsn, 8, 5)[:49])
        assert (row["row"] is None) == (op == "d")
        if op != "d":
            assert (row["row"]["v"], row["row"]["n"]) == (image["v"], image.get("n"))
    assert sum(row["n_c"] + row["n_u"] + row["n_d"] for row in rows) == len(events)
    assert reported.high_order == max(row["order"] for row in rows)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("cuts", [1, 2, 5])
def test_omitted_values_come_from_the_newest_earlier_event(tmp_path: Path, cuts: int) -> None:
    rng, events = random.Random(cuts), []
    rows: dict[int, dict[str, Any]] = {}
    last: dict[int, int] = {}
    for lsn in range(1, 241):
        key = rng.randrange(60)
        left_out = {name: "__gone" for name in ("v", "n") if rng.random() < 0.8} if rows.get(key, True) else {}
        op = "u" if rows.get(key, True) else "c"
        if op == "u" and rng.random() < 0.1:
            events.append(event(lsn, "d", {"id": key}))
            rows[key], last[key] = {}, lsn
            continue
        image = {"id": key, "v": f"é{lsn}", "n": lsn + 0.25}
        rows[key] = image | {name: rows.get(key, {}).get(name, "__gone") for name in left_out}
        last[key] = lsn
        events.append(event(lsn, op, image | left_out))
    rng.shuffle(events)
    numbers = files(tmp_path, events)
    folded, reported = run(numbers, cuts, marks=Marks(high=order_key(1, 0, 9)))
    assert (reported.odd, reported.left_out) == (None, None)
    assert {row["key"]["id"]: int(row["order"][4:20], 16) for row in folded} == last
    for row in folded:
        expected = rows[row["key"]["id"]]
        names = [name for name in ("v", "n") if expected.get(name) == "__gone"]
        assert row["open"] == (names or None) and (row["row"] is None) == (not expected)
        assert all(row["row"][name] == expected[name] for name in expected if name not in names)
    still = sum("__gone" in row.values() for row in rows.values())
    left = sum("__gone" in (e["after"] or {}).values() for e in events if e["source"]["lsn"] in last.values())
    assert 0 < reported.open == still < reported.open + reported.filled == left
    assert [order[:49] for order in reported.first_orders.values()] == [order_key(1, 1, 1, 8, 5)[:49]]


@pytest.mark.usefixtures("small")
def test_all_events_remain_without_folding(tmp_path: Path) -> None:
    events = [event(n, "c", {"id": n % 3, "v": "x", "n": 1}) for n in range(50)]
    rows, reported = run(files(tmp_path, events), 3, folded=False)
    assert len(rows) == 50 and reported.events["c"] == 50 and len({row["order"] for row in rows}) == 50


def test_a_task_returns_every_event_beside_folded_rows(tmp_path: Path) -> None:
    planned = pieces.plan(files(tmp_path, [event(n, "u", {"id": n % 2, "v": "x"}) for n in range(6)]), 1, 1 << 40)
    assert planned is not None
    task = DecodeTask(DECODING, planned[0], Buffering.of(DECODING, ONE_GROUP, NEW, every=True, alone=True))
    unpack, counts = UnpackTask(("id", "v", "n"), ("id",), "rcud"), {tasks.EVERY: 0, 0: 0}
    for row in task([pa.RecordBatch.from_arrays([pa.array([0])], ["id"])]):
        counts[row["grp"][0].as_py()] += sum(map(len, unpack([row.select(["packed"])])))
    assert counts == {tasks.EVERY: 6, 0: 2}


def test_events_of_one_shape_are_read_like_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [event(n, "cud"[n % 3], {"id": n % 7, "v": f"[{n}", "n": n}) for n in range(60)]
    events += [event(n, "c", {"id": n, "v": f"v{n}", "n": n}) for n in range(60, 90)]
    numbers = files(tmp_path, events)
    plain = run(numbers, 1)
    monkeypatch.setattr("lakecdc.ingest.engine.events.can_be_alike", lambda event: False)
    assert run(numbers, 1) == plain and plain[1].odd is None


ODD: dict[str, dict[str, Any]] = {
    "a new column z": {"id": 1, "v": "x", "n": 1, "z": 5},
    "a value of the column n": {"id": 1, "v": "x", "n": 1.005},
    "a value of the column id": {"id": 1.5, "v": "x", "n": 1},
    "the key column id": {"id": None, "v": "x", "n": 1},
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("reason", ODD)
def test_odd_messages_are_reported(tmp_path: Path, reason: str) -> None:
    plain = [event(n, "c", {"id": n, "v": "x", "n": 1}) for n in range(2, 60)]
    assert run(files(tmp_path, [*plain, event(60, "c", ODD[reason])]), 2)[1].odd == reason


def test_invalid_json_and_placeholders_are_reported(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps(event(1, "c", {"id": 1, "v": "x", "n": 1})) + "\n{broken\n")
    assert run({(tmp_path / "x.jsonl").as_uri(): 0}, 1)[1].odd == "text that is not JSON"
    numbers = files(tmp_path, [event(1, "u", {"id": 1, "v": "__gone", "n": 1})], 1)
    rows, reported = run(numbers, 1, folded=False)
    assert reported.odd is None and reported.open == 1 and rows[0]["open"] == ["v"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("cuts", [1, 3])
def test_a_fold_stops_at_values_that_only_the_table_has(tmp_path: Path, cuts: int) -> None:
    events = [event(n, "u", {"id": n, "v": "__gone" if n == 1 else "v", "n": n}) for n in range(1, 20_001)]
    numbers = files(tmp_path, events, 1)
    rows, reported = run(numbers, cuts, marks=Marks(high=order_key(1, 1, 1, time=5, offset=9)))
    assert (reported.odd, reported.left_out) == (None, tasks.BEHIND_STORED)
    if cuts == 1:
        assert not rows


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("cuts", [1, 4])
@pytest.mark.parametrize("folded", [False, True])
def test_odd_lines_are_set_aside_unchanged(tmp_path: Path, cuts: int, folded: bool) -> None:
    plain = [event(n, "c", {"id": n, "v": "x", "n": 1}) for n in range(2, 60)]
    lines = [json.dumps(e) for e in plain]
    odd = {15: json.dumps(event(60, "c", ODD["a new column z"])), 30: '{"é', 57: "no JSON", 58: json.dumps([5])}
    for place, line in odd.items():
        lines.insert(place, line)
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(lines) + "\n")
    planned = pieces.plan({path.as_uri(): 3}, cuts, 1 << 40)
    assert planned is not None and len(planned[0].tasks) == cuts
    groups = grouping([], ["id"], ["bigint"], 2) if folded else None
    decode = DecodeTask(
        replace(DECODING, sets_aside=True),
        planned[0],
        Buffering.of(DECODING, groups, NEW, every=not folded, alone=cuts == 1),
    )
    inputs = [pa.RecordBatch.from_arrays([pa.array([n])], ["id"]) for n in range(cuts)]
    rows = [row for one in inputs for row in decode([one])]
    if folded and cuts > 1:
        rows = list(FoldTask(1, ("id", "v", "n"))(rows))
    reported = facts.merged(facts.from_json(row["facts"][0].as_py()) for row in rows if row["facts"][0].is_valid)
    assert (reported.odd, reported.aside, reported.why, reported.keys) == (None, 4, "a new column z", len(plain))
    messages = [m for row in rows for batch in rows_of_cells([row.select(["aside"])]) for m in batch.to_pylist()]
    places = {m["arrival"] - (3 << pieces.PLACE_BITS): m["value"] for m in messages}
    content = path.read_bytes()
    assert sorted(places.values()) == sorted(f"{line}\n" for line in odd.values())
    assert all(content[place:].startswith(value.encode()) for place, value in places.items())


def messages(rows: list[tuple[int, Any, Any, dict[str, Any] | None]]) -> pa.RecordBatch:
    """Return records of two partitions: number, key, value, old key."""

    def raw(document: Any) -> bytes | None:
        return None if document is None else json.dumps(document).encode()

    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.record_batch(
        {
            "topic": pa.array(["t"] * len(rows)),
            "partition": pa.array([n % 2 for n, *_ in rows], pa.int32()),
            "key": pa.array([raw(key) for _, key, *_ in rows], pa.binary()),
            "value": pa.array([raw(value) for *_, value, _ in rows], pa.binary()),
            "headers": pa.array(
                [[{"key": "__debezium.oldkey", "value": raw(old)}] if old else None for *_, old in rows], header
            ),
            "arrival": pa.array([n for n, *_ in rows], pa.int64()),
            "timestamp": pa.nulls(len(rows), pa.timestamp("us", "UTC")),
        }
    )


def test_topic_records_with_tombstones_and_key_changes_are_folded() -> None:
    rows = [
        (0, {"id": 1}, event(10, "c", {"id": 1, "v": "a", "n": 1}), None),
        (1, {"id": 2}, event(11, "c", {"id": 2, "v": "b", "n": 2}), None),
        (2, {"id": 1}, event(12, "d", {"id": 1}), None),
        (3, {"id": 1}, None, None),
        (4, {"id": 7}, event(12, "c", {"id": 7, "v": "a", "n": 1}), {"id": 1}),
        (5, None, {"ts_ms": 3}, None),
    ]
    decoding = decoding_of(FIELDS, keyed=True)
    task = DecodeTask(decoding, lambda _: iter([messages(rows)]), Buffering.of(decoding, ONE_GROUP, NEW, alone=True))
    cells = list(task([]))
    reported = facts.merged(facts.from_json(row["facts"][0].as_py()) for row in cells if row["facts"][0].is_valid)
    unpack = UnpackTask(("id", "v", "n"), ("id",), "rcud")
    changes = [r for cell in cells for b in unpack([cell.select(["packed"])]) for r in b.to_pylist()]
    assert (reported.odd, reported.tables, reported.keys, reported.lone, reported.events["x"]) == (
        None,
        ("s.t",),
        3,
        0,
        1,
    )
    assert sorted(reported.high_orders) == ["t/0", "t/1"]
    assert [(r["op"], r["key"]["id"], r["old_key"]) for r in changes] == [
        ("d", 1, None),
        ("c", 2, None),
        ("c", 7, {"id": 1}),
    ]


@pytest.mark.parametrize("cuts", [1, 2])
def test_values_that_only_another_key_has_are_not_folded(tmp_path: Path, cuts: int) -> None:
    incomplete = {"id": 1, "v": "__gone", "n": 1}
    deleted, new = (
        [event(1, "d", {"id": 1}), event(2, "u", incomplete)],
        [event(1, "c", {"id": 2}), event(2, "c", incomplete)],
    )
    for events, why in ((deleted, "after the delete of its row"), (new, "other than an update of the same key")):
        rows, reported = run(files(tmp_path, events), cuts)
        assert not rows and reported.odd is None and why in str(reported.left_out)
    moved: list[tuple[int, Any, Any, dict[str, Any] | None]] = [(0, {"id": 1}, event(10, "u", incomplete), {"id": 7})]
    decoding = decoding_of(FIELDS, keyed=True)
    buffering = Buffering.of(decoding, ONE_GROUP, NEW, alone=True)
    (cell,) = DecodeTask(decoding, lambda _: iter([messages(moved)]), buffering)([])
    assert "other than an update of the same key" in str(facts.from_json(cell["facts"][0].as_py()).left_out)


def test_a_delete_omits_no_value() -> None:
    flat = {"id": 1, "v": "__gone", "n": None, "__deleted": "true", "__op": "d", "__lsn": 5, "__table": "t"}
    decoding = decoding_of(FIELDS, "debezium-flat-json", keyed=True)
    rows = messages([(0, {"id": 1}, flat, None)])
    buffering = Buffering.of(decoding, None, NEW, every=True, alone=True)
    cells = list(DecodeTask(decoding, lambda _: iter([rows]), buffering)([]))
    unpack = UnpackTask(("id", "v", "n"), ("id",), "rcud")
    (change,) = [r for cell in cells for b in unpack([cell.select(["packed"])]) for r in b.to_pylist()]
    assert (change["op"], change["open"], change["row"]) == ("d", None, None)
