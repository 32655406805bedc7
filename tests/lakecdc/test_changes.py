"""Changes between two snapshots, and the files read for them; ``export`` tests random histories."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakecdc import changes
from lakecdc.contract.errors import InputError
from lakecdc.iceberg.difference import difference, differences, stretches
from lakecdc.iceberg.table import Snapshot
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.rollback import rollback_tables
from tests.conftest import Lake
from tests.lakecdc.maintain.support import append, append_parts, create, delete_by_key, head, run

PAGE = (Path(__file__).parents[2] / "docs/guides/changes.md").read_text()


def count_changes(
    lake: Lake, name: str, since: str | int, until: str | int | None = None, key: list[str] | None = None
) -> Counter[tuple[Any, ...]]:
    rows = changes.read(lake.spark, f"lake.{name}", since=since, until=until, key=key)
    return Counter((row[changes.CHANGE_TYPE], *row[:-1]) for row in rows.collect())


def test_maintenance_is_not_a_change_and_untouched_files_are_not_read(lake: Lake) -> None:
    name = create(lake, 2)
    append_parts(lake, name, 0, 40, 2)
    delete_by_key(lake, name, [3])
    first = head(lake, name)
    run(lake, rewrite_delete_files, name)
    run(lake, compact_data_files, name, min_input_files=2)
    assert not count_changes(lake, name, first)
    compacted = head(lake, name)
    append(lake, name, 50, 51)
    assert count_changes(lake, name, compacted) == Counter([("insert", 50, "old50", 0)])
    table = lake.table(name)
    newest, oldest = (table.snapshot(id) for id in (head(lake, name), first))
    assert newest and oldest
    change = difference(table, compacted, newest.id)
    assert [list.size() for list in (change.removed, change.added, change.before, change.after)] == [0, 1, 0, 0]
    # the compaction's files are not read either
    assert sum(each.bytes for each in differences(table, oldest, newest)) < difference(table, first, newest.id).bytes


@pytest.mark.parametrize(
    ("operations", "ways"),
    [
        ("", []),
        ("aa", [(0, 2)]),
        ("rr", []),
        ("ar", [(0, 1)]),
        ("ra", [(1, 2)]),
        ("raora", [(1, 3), (4, 5)]),
    ],
)
def test_rewrites_are_skipped(operations: str, ways: list[tuple[int, int]]) -> None:
    names = {"a": "append", "o": "overwrite", "r": "replace"}
    chain = [Snapshot(0, 0, "replace", {}, None, 0)]
    chain += [Snapshot(n, n, names[each], {}, n - 1, n) for n, each in enumerate(operations, 1)]
    assert stretches(chain[0], chain[::-1]) == ways
    assert stretches(Snapshot(9, 9, "append", {}, None, 9), chain[::-1]) is None


def test_rows_without_a_key_are_counted_and_new_columns_are_null_before(lake: Lake) -> None:
    name = create(lake, 3, columns="id bigint, m map<string, int>")
    lake.sql(f"INSERT INTO lake.{name} VALUES (1, map('a', 1)), (1, map('a', 1)), (1, map('a', 1)), (2, NULL)")
    first = head(lake, name)
    lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN `new.one` int")
    lake.sql(f"DELETE FROM lake.{name} WHERE id = 1")
    lake.sql(f"INSERT INTO lake.{name} VALUES (1, map('a', 1), NULL), (2, NULL, 5), (2, NULL, 5)")
    rows_changed = changes.read(lake.spark, f"lake.{name}", since=first)
    assert rows_changed.columns == ["id", "m", "new.one", "_change_type"]
    rows = Counter((row[3], row[0], str(row[1]), row[2]) for row in rows_changed.collect())
    assert rows == Counter({("delete", 1, "{'a': 1}", None): 2, ("insert", 2, "None", 5): 2})


def test_rows_are_distinguished_exactly(lake: Lake) -> None:
    name = create(lake, 3, columns="id bigint, x double, m map<string, timestamp>, v variant")

    def row(id: int, x: str = "1.0D", micros: int = 1, v: int = 1) -> str:
        at = f"timestamp_micros({micros})"
        return f"SELECT {id}, {x}, map('a', {at}), to_variant_object(named_struct('at', timestamp_micros({v})))"

    def rows(*texts: str) -> None:
        lake.sql(f"INSERT INTO lake.{name} {' UNION ALL '.join(texts)}")

    rows(row(1, "-0.0D"), row(2), row(3), row(4, "double('NaN')"), row(5, "0.0D"), row(5, "-0.0D"))
    first = head(lake, name)
    lake.sql(f"DELETE FROM lake.{name} WHERE true")
    rows(row(1, "0.0D"), row(2, micros=2), row(3, v=2), row(4, "double('NaN')"), row(5, "-0.0D"), row(5, "0.0D"))
    for key, kinds in ([], ("delete", "insert")), (["id"], ("update_before", "update_after")):
        rows_changed = changes.read(lake.spark, f"lake.{name}", since=first, key=key)
        shown = rows_changed.selectExpr(
            "_change_type", "id", "string(x)", "unix_micros(m.a)", "variant_get(v, '$.at', 'string')"
        )
        rows_shown = shown.collect()
        old, new = ({row[1]: tuple(row[2:]) for row in rows_shown if row[0] == kind} for kind in kinds)
        assert len(rows_shown) == 6
        differences = {id: [a != b for a, b in zip(old[id], new[id], strict=True)] for id in old}
        assert differences == {1: [True, False, False], 2: [False, True, False], 3: [False, False, True]}
        assert (old[1][0], new[1][0]) == ("-0.0", "0.0")


def test_a_rollback_yields_inverse_changes(lake: Lake) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 10)
    first = head(lake, name)
    delete_by_key(lake, name, [3], "new")
    undone = head(lake, name)
    run(lake, rollback_tables, name, to=str(first))
    assert count_changes(lake, name, undone, key=["id"]) == Counter(
        [("update_before", 3, "new3", 1), ("update_after", 3, "old3", 1)]
    )


def test_impossible_requests_are_refused(lake: Lake) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 10)
    first = head(lake, name)
    for since in ("1234", "2020-01-01"):
        message = rf"{name}: The snapshot .* does not exist\. The oldest snapshot is {first} of 20"
        with pytest.raises(InputError, match=message):
            count_changes(lake, name, since)
    with pytest.raises(InputError, match=r"key columns \['x'\]"):
        count_changes(lake, name, first, key=["x"])
    lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN _change_type string")
    with pytest.raises(InputError, match="is reserved"):
        count_changes(lake, name, first)


def test_the_documented_example_works(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python changes\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    name = create(lake, 2)
    append(lake, name, 0, 10)
    moment = datetime.now(UTC).isoformat()
    delete_by_key(lake, name, [3], "new")
    code = code.replace("lake.shop.orders", f"lake.{name}").replace("2026-01-31T08:00:00+01:00", moment)
    exec(code, {"spark": lake.spark})
    shown = capsys.readouterr().out
    assert "new3" in shown and "old3" not in shown
