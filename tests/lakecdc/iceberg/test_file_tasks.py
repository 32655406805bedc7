"""Data files and their deletes are paired as Iceberg's planning does, in few calls however many there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakecdc.iceberg import file_tasks
from lakecdc.iceberg.file_tasks import (
    FileTask,
    java_tasks,
    others_of,
    pairs_with,
    parts_by_pairs,
    planned_tasks,
    planned_without,
    tasks_under,
)
from lakecdc.iceberg.jvm import iterate, listed
from lakecdc.iceberg.live_deletes import EqualityDelete, PositionDelete, Scopes, live_deletes
from lakecdc.iceberg.table import IcebergTable
from tests.conftest import Lake
from tests.lakecdc.iceberg.java_commands import sent_commands
from tests.lakecdc.iceberg.metadata_only import append, delete

FILES = [f"file:///data/{number}-ä,\"'.parquet" for number in range(7)]


@pytest.fixture(scope="module")
def table(lake: Lake) -> IcebergTable:
    """Create data files in two buckets and in no partition, with older and newer deletes of each and of the table."""
    name = lake.new_name("planned")
    lake.sql(
        f"CREATE TABLE lake.{name} (id bigint, v string) USING iceberg PARTITIONED BY (bucket(2, id)) "
        "TBLPROPERTIES ('format-version'='2')"
    )
    table = lake.table(name)
    append(table, FILES[:2], "id_bucket=0")
    append(table, FILES[2:4], "id_bucket=1")
    delete(table, "equality-0", "id_bucket=0", key=1)
    delete(table, "equality-1", "id_bucket=1", key=1)
    delete(table, "positions-1", "id_bucket=1")
    delete(table, "positions-of-2", "id_bucket=1", of=FILES[2])
    append(table, FILES[4:5], "id_bucket=1")
    lake.sql(f"ALTER TABLE lake.{name} DROP PARTITION FIELD bucket(2, id)")
    append(table, FILES[5:6])
    delete(table, "equality-all", key=2)
    append(table, FILES[6:])
    return table.refresh()


def planned(table: IcebergTable) -> tuple[list[EqualityDelete], list[PositionDelete], list[FileTask]]:
    scopes, start = Scopes(table), table.head()
    assert start is not None
    keys = {("positions-1", None)}
    equality, positions = live_deletes(table, start.id, scopes, keys)
    return equality, positions, list(planned_tasks(table, start.id, equality, positions, scopes))


def test_live_deletes_are_listed(table: IcebergTable) -> None:
    equality, positions, _ = planned(table)
    assert [(d.location, d.records, d.field_ids) for d in sorted(equality, key=lambda d: d.location)] == [
        ("equality-0", 1, (1,)),
        ("equality-1", 1, (1,)),
        ("equality-all", 1, (2,)),
    ]
    assert {d.location: d.scope is None for d in equality}["equality-all"]
    assert [(p.key, p.spec_id) for p in positions] == [(("positions-1", None), 0)]
    assert [str(d.java.location()) for d in equality] == [d.location for d in equality]
    assert str(positions[0].java.location()) == "positions-1"


@pytest.mark.parametrize("at_once", [2, 1000])
def test_tasks_equal_those_of_iceberg(table: IcebergTable, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_tasks, "PART", at_once)
    monkeypatch.setattr(file_tasks, "_FEWEST_AT_ONCE", at_once)
    monkeypatch.setattr(file_tasks, "_OTHERS_AT_ONCE", 1)
    equality, positions, tasks = planned(table)
    expected = {str(task.file().location()): task for task in iterate(table.java.newScan().planFiles())}
    assert sorted(task.location for task in tasks) == sorted(FILES[:6])
    assert [task.number for task in tasks] == list(range(6))
    scopes = {task.location: task.scope for task in tasks}
    assert scopes[FILES[0]] == scopes[FILES[1]] != scopes[FILES[2]] == scopes[FILES[3]] == scopes[FILES[4]]
    assert len({*scopes.values()}) == 3
    assert {d.location: d.scope for d in equality}["equality-1"] == positions[0].scope == scopes[FILES[2]]
    others = others_of(tasks)
    for task in tasks:
        iceberg = expected[task.location]
        kinds = [str(d.content().toString()) for d in iceberg.deletes()]
        assert task.equality_deletes == kinds.count("EQUALITY_DELETES") and not task.astray and task.paired
        assert task.others == kinds.count("POSITION_DELETES") == len(others.get(task.number, ()))
        assert (task.spec_id, task.records) == (iceberg.file().specId(), 10)
        assert task.sequence_number == iceberg.file().dataSequenceNumber()
        assert str(task.java.location()) == task.location
        assert [o.location for o in others.get(task.number, ())] == [
            str(task.other(i).location()) for i in range(task.others)
        ]
    by_location = {task.location: others.get(task.number, ()) for task in tasks}
    assert {o.location: o.file_scoped for o in by_location[FILES[2]]} == {"positions-1": False, "positions-of-2": True}
    assert [(o.key, o.format, o.length) for o in by_location[FILES[3]]] == [(("positions-1", None), "PARQUET", None)]


def test_tasks_have_the_forms_that_readers_need(table: IcebergTable) -> None:
    equality, _, tasks = planned(table)
    two, three = ([t for t in tasks if t.location == location] for location in (FILES[2], FILES[3]))
    assert _deletes(java_tasks([*three, *two], "paired")) == [
        (FILES[3], {"equality-1", "equality-all", "positions-1"}),
        (FILES[2], {"equality-1", "equality-all", "positions-1", "positions-of-2"}),
    ]
    assert _deletes(java_tasks(two, "others")) == [(FILES[2], {"positions-1", "positions-of-2"})]
    assert {str(task.spec().toString()) for task in listed(tasks_under(table, two, equality))} == {
        str(table.java.specs().get(0).toString())
    }
    assert _deletes(tasks_under(table, two, equality)) == [(FILES[2], {"equality-1", "equality-all"})]
    of_two = [delete for delete in equality if delete.location == "equality-1"]
    assert [location for location, _ in _deletes(tasks_under(table, [*two, *three], of_two))] == [FILES[2], FILES[3]]
    # by the rule of the specification where no pairs are stored
    for under in ([replace(task, paired=False) for task in of] for of in (two, [*two, *three])):
        assert _deletes(tasks_under(table, under, equality)) == [
            (t.location, {"equality-1", "equality-all"}) for t in under
        ]


def test_deletes_are_split_into_parts_of_limited_pairs(table: IcebergTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_tasks, "MAX_PAIRS", 3)
    equality, _, tasks = planned(table)
    for paired in (True, False):
        some = [replace(task, paired=paired) for task in sorted(tasks, key=lambda one: one.location)]
        parts = parts_by_pairs(some, equality)
        assert [task for part in parts for task in part] == some
        assert [_pairs(part, equality) for part in parts] == [2, 2, 2, 2 + 1, 1]


def _pairs(tasks: list[FileTask], deletes: list[EqualityDelete]) -> int:
    return sum(delete.reaches(task.scope, task.sequence_number) for task in tasks for delete in deletes)


def _deletes(tasks: Any) -> list[tuple[str, set[str]]]:
    return [(str(t.file().location()), {str(d.location()) for d in listed(t.deletes())}) for t in listed(tasks)]


def test_pairs_above_the_limit_are_not_stored(table: IcebergTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_tasks, "MAX_PAIRS", 3)
    monkeypatch.setattr(file_tasks, "_FEWEST_AT_ONCE", 4)
    monkeypatch.setattr(file_tasks, "PART", 4)
    _, _, tasks = planned(table)
    pairs, are_paired = 0, []
    for task in tasks:
        pairs += task.equality_deletes
        are_paired.append(pairs <= 3)
    assert [task.paired for task in tasks] == are_paired and True in are_paired and False in are_paired
    paired = [task for task in tasks if task.paired]
    store = paired[0].store
    assert (store.paired.size(), store.bare.size()) == (len(paired), len(tasks))
    assert [location for location, _ in _deletes(java_tasks(paired, "paired"))] == [t.location for t in paired]
    assert [location for location, _ in _deletes(java_tasks(tasks, "others"))] == [t.location for t in tasks]


def test_thousands_of_data_files_take_hundreds_of_calls(lake: Lake) -> None:
    name = lake.new_name("planned")
    lake.sql(f"CREATE TABLE lake.{name} (id bigint) USING iceberg TBLPROPERTIES ('format-version'='2')")
    table = lake.table(name)
    append(table, [f"old-{number}" for number in range(5000)])
    delete(table, "equality", key=1)
    append(table, [f"new-{number}" for number in range(5000)])
    with sent_commands(lake.spark) as sent:
        equality, _, tasks = planned(table.refresh())
        assert len(java_tasks(tasks, "paired")) == len(tasks) == 5000
    assert (len(equality), {task.equality_deletes for task in tasks}) == (1, {1})
    assert len(sent) < 1000


@pytest.mark.parametrize("limit", [file_tasks.MAX_PAIRS, 0])
def test_files_of_chosen_deletes_are_selected(table: IcebergTable, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_tasks, "MAX_PAIRS", limit)
    equality, positions, tasks = planned(table)
    by_location, names = {d.location: d for d in equality}, {t.number: t.location for t in tasks}

    def reached(*deletes: EqualityDelete | PositionDelete) -> set[str]:
        return {names[number] for number in pairs_with(table, deletes, tasks)}

    assert reached() == set() == pairs_with(table, equality, [])
    assert reached(by_location["equality-0"]) == set(FILES[:2])
    assert reached(by_location["equality-0"], *positions) == set(FILES[:4])
    assert reached(by_location["equality-all"]) == set(FILES[:6])


def test_deletes_can_be_left_out_of_a_plan(table: IcebergTable) -> None:
    equality, _, tasks = planned(table)
    left = planned_without(table, tasks, [d for d in equality if d.location != "equality-1"])
    assert {(t.location, t.equality_deletes, t.others) for t in left} == {
        (file, int(file in FILES[2:4]), t.others) for t in tasks for file in [t.location]
    }
    two = [task for task in left if task.location == FILES[2]]
    assert _deletes(java_tasks(two, "paired")) == [(FILES[2], {"equality-1", "positions-1", "positions-of-2"})]
    before = [task for task in tasks if task.location == FILES[2]]
    assert "equality-all" in _deletes(java_tasks(before, "paired"))[0][1]
