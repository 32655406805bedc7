"""What has changed between two snapshots, against a plain model: every kind of delete, maintenance in between."""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakecdc import changes
from lakecdc.contract.errors import InputError
from lakecdc.iceberg.difference import difference
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.rollback import rollback_tables
from lakecdc.maintain.sort import sort_data_files
from lakecdc.run import TableWork
from tests.conftest import Lake
from tests.lakecdc.maintain.support import append, create, delete_by_key, head, run

PAGE = (Path(__file__).parents[2] / "docs/changes.md").read_text()
State = dict[int, tuple[Any, ...]]
MAINTENANCE: tuple[tuple[TableWork, dict[str, Any]], ...] = (
    (rewrite_delete_files, {}),
    (compact_data_files, {"min_input_files": 2}),
    (sort_data_files, {"columns": ["id"]}),
)


def told(
    lake: Lake, name: str, since: str | int, until: str | int | None = None, key: list[str] | None = None
) -> Counter[tuple[Any, ...]]:
    found = changes.read(lake.spark, f"lake.{name}", since=since, until=until, key=key)
    return Counter((row[changes.CHANGE_TYPE], *row[:-1]) for row in found.collect())


def expected(before: State, after: State) -> Counter[tuple[Any, ...]]:
    found = Counter[tuple[Any, ...]]()
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if old:
            found["update_before" if new else "delete", key, *old] += 1
        if new:
            found["update_after" if old else "insert", key, *new] += 1
    return found


class Random:
    """A table that is written at random, and what it holds after each commit.

    :param version: Iceberg format version.
    """

    def __init__(self, lake: Lake, version: int, seed: int) -> None:
        self.lake, self.name = lake, create(lake, version, **{"write__update__mode": "merge-on-read"})
        self.rows: State = {}
        self.states: list[tuple[int, State]] = []
        self._random, self._width = random.Random(seed), 2

    def step(self, number: int) -> None:
        ids = self._random.sample(range(40), 5)
        chosen = ", ".join(map(str, ids))
        match number % 6:
            case 0:
                low = 100 * (number + 1)
                append(self.lake, self.name, low, low + 20)
                self._put(range(low, low + 20), "old")
            case 1 | 3:
                delete_by_key(self.lake, self.name, ids, f"upsert{number}-")
                self._put(ids, f"upsert{number}-")
            case 2:
                self.lake.sql(f"UPDATE lake.{self.name} SET v = 'updated{number}' WHERE id IN ({chosen})")
                self.rows |= {i: (f"updated{number}", *self.rows[i][1:]) for i in ids if i in self.rows}
            case 4:
                self.lake.sql(f"DELETE FROM lake.{self.name} WHERE id IN ({chosen})")
                self.rows = {i: row for i, row in self.rows.items() if i not in ids}
            case _:
                delete_by_key(self.lake, self.name, ids)
                self.rows = {i: row for i, row in self.rows.items() if i not in ids}
        self.kept()

    def maintain(self, number: int) -> None:
        work, options = MAINTENANCE[number % len(MAINTENANCE)]
        run(self.lake, work, self.name, **options)
        self.kept()

    def kept(self) -> None:
        self.states.append((head(self.lake, self.name), dict(self.rows)))

    def _put(self, ids: Any, text: str) -> None:
        self.rows |= {i: (f"{text}{i}", i % 2) for i in ids}


@pytest.mark.parametrize("version", [2, 3])
def test_changes_between_random_snapshots(lake: Lake, version: int) -> None:
    written, choice = Random(lake, version, seed=version), random.Random(version)
    for number in range(12):
        written.step(number)
        if number % 2:
            written.maintain(number // 2)
    pairs = [choice.sample(written.states, 2) for _ in range(6)] + [[written.states[0], written.states[-1]]]
    for (since, before), (until, after) in pairs:
        assert told(lake, written.name, since, until, key=["id"]) == expected(before, after)


def test_maintenance_is_no_change_and_untouched_files_are_not_read(lake: Lake) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 20)
    append(lake, name, 20, 40)
    delete_by_key(lake, name, [3])
    first = head(lake, name)
    run(lake, rewrite_delete_files, name)
    run(lake, compact_data_files, name, min_input_files=2)
    assert not told(lake, name, first)
    compacted = head(lake, name)
    append(lake, name, 50, 51)
    assert told(lake, name, compacted) == Counter([("insert", 50, "old50", 0)])
    found = difference(lake.table(name), compacted, head(lake, name))
    assert [list.size() for list in (found.gone, found.added, found.before, found.after)] == [0, 1, 0, 0]


def test_rows_without_a_key_are_counted_and_new_columns_are_null_before(lake: Lake) -> None:
    name = create(lake, 3, columns="id bigint, m map<string, int>")
    lake.sql(f"INSERT INTO lake.{name} VALUES (1, map('a', 1)), (1, map('a', 1)), (1, map('a', 1)), (2, NULL)")
    first = head(lake, name)
    lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN `new.one` int")
    lake.sql(f"DELETE FROM lake.{name} WHERE id = 1")
    lake.sql(f"INSERT INTO lake.{name} VALUES (1, map('a', 1), NULL), (2, NULL, 5), (2, NULL, 5)")
    found = changes.read(lake.spark, f"lake.{name}", since=first)
    assert found.columns == ["id", "m", "new.one", "_change_type"]
    rows = Counter((row[3], row[0], str(row[1]), row[2]) for row in found.collect())
    assert rows == Counter({("delete", 1, "{'a': 1}", None): 2, ("insert", 2, "None", 5): 2})


def test_a_rollback_leads_back(lake: Lake) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 10)
    first = head(lake, name)
    delete_by_key(lake, name, [3], "new")
    undone = head(lake, name)
    run(lake, rollback_tables, name, to=str(first))
    assert told(lake, name, undone, key=["id"]) == Counter(
        [("update_before", 3, "new3", 1), ("update_after", 3, "old3", 1)]
    )


def test_what_cannot_be_told_is_refused(lake: Lake) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 10)
    first = head(lake, name)
    for since in ("1234", "2020-01-01"):
        with pytest.raises(InputError, match=rf"{name}: There is no snapshot .* oldest snapshot .* is {first} of 20"):
            told(lake, name, since)
    with pytest.raises(InputError, match=r"key columns \['x'\]"):
        told(lake, name, first, key=["x"])
    lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN _change_type string")
    with pytest.raises(InputError, match="of its own"):
        told(lake, name, first)


def test_the_page_shows_what_works(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python changes\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    name = create(lake, 2)
    append(lake, name, 0, 10)
    moment = datetime.now(UTC).isoformat()
    delete_by_key(lake, name, [3], "new")
    code = code.replace("lake.shop.orders", f"lake.{name}").replace("2026-01-31T08:00:00+01:00", moment)
    exec(code, {"spark": lake.spark})
    shown = capsys.readouterr().out
    assert "new3" in shown and "old3" not in shown
