"""Keys that are inserted and deleted many times: only deletes of later commits apply to a row."""

from __future__ import annotations

import pytest

from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.changes import Writer
from tests.lakecdc.maintain.delete_files.support import convert, create, pyiceberg_rows, spark_rows
from tests.on_demand import on_demand
from tests.versions import V2


@pytest.mark.parametrize(
    ("version", "layout"),
    on_demand([(3, "bucket(2, id)"), (2, "bucket(2, id)"), (3, "")], in_ci=[(3, "bucket(2, id)")]),
)
def test_a_key_can_be_deleted_inserted_and_deleted_again(lake: Lake, version: int, layout: str) -> None:
    name = create(lake, "id bigint NOT NULL, v string", version, layout)
    writer = Writer(lake, name, seed=version)
    writer.append(range(6))
    writer.delete([0, 1, 2])
    writer.append([0, 1])
    writer.delete([0])
    # in one commit: key 1 is replaced, key 3 is deleted, key 7 is new
    writer.upsert([1, 3, 7], [1, 7])
    writer.delete([1, 2, 4])
    writer.append([0, 1, 2])
    writer.upsert([2], [2])
    assert spark_rows(lake, name) == writer.expected()
    convert(lake, name)
    assert {key: value[-1] for key, value in writer.rows.items()} == {0: "6", 1: "6", 2: "7", 5: "0", 7: "4"}


@V2
def test_random_changes_survive_conversions(lake: Lake, version: int) -> None:
    name = create(lake, "id bigint NOT NULL, v string", version)
    writer = Writer(lake, name, seed=10 + version, keys=24)
    writer.append(range(12))
    for _ in range(2):
        for _ in range(3):
            writer.step()
        writer.delete([0, 1])
        convert(lake, name)
        assert pyiceberg_rows(lake, name) == writer.expected()
