"""Iceberg's core and pyiceberg produce the same metadata from the same updates."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from lakecdc.contract.errors import InputError, UnsupportedError
from lakecdc.iceberg.metadata_updates import JvmApplier
from lakecdc.object_store.pyiceberg_applier import PyicebergApplier, first_difference
from tests.conftest import Lake
from tests.lakecdc.object_store.metadata_requests import (
    LOCATION,
    UUID,
    comparable,
    creation,
    field,
    main,
    partition_statistics,
    request,
    schema,
    set_properties,
    snapshot,
    statistics,
)


@pytest.fixture(scope="module")
def core(lake: Lake) -> JvmApplier:
    """Return the applier of Iceberg's core."""
    return JvmApplier(lake.spark)


def ref(name: str, number: int, kind: str = "branch") -> dict[str, Any]:
    """Return an update that sets a branch or a tag."""
    return {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": number}


def story(version: int, at: int) -> list[list[dict[str, Any]]]:
    """Return requests with every update of a table, each based on the result of the previous one."""
    wider = schema(1, field(11, "note", "string", doc="new"))
    spec = {"source-id": 1, "field-id": 1001, "transform": "bucket[8]", "name": "id_bucket"}
    order = {"source-id": 2, "transform": "day", "direction": "desc", "null-order": "nulls-last"}
    return [
        [{"action": "assign-uuid", "uuid": UUID}, {"action": "upgrade-format-version", "format-version": version}],
        # the first snapshot is added and removed within one request
        [snapshot(1, at, version), main(1), snapshot(2, at, version), main(2)],
        [snapshot(3, at, version), main(3), statistics(3), partition_statistics(3)],
        [snapshot(4, at, version), {**ref("audit", 4), "min-snapshots-to-keep": 2, "max-ref-age-ms": 9}],
        [ref("audit", 3), {**ref("paid", 2, "tag"), "max-ref-age-ms": 7}],
        # ids that the client does not know
        [{"action": "add-schema", "schema": {**wider, "schema-id": 7}, "last-column-id": 11}],
        [{"action": "add-schema", "schema": wider}, {"action": "set-current-schema", "schema-id": 1}],
        [
            {"action": "add-spec", "spec": {"spec-id": 4, "fields": [spec]}},
            {"action": "set-default-spec", "spec-id": -1},
        ],
        [
            {"action": "add-sort-order", "sort-order": {"order-id": 9, "fields": [order]}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
        ],
        [
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
        ],
        [set_properties(**{"write.metadata.previous-versions-max": "3", "a": "b"})],
        [{"action": "remove-properties", "removals": ["a", "absent"]}],
        [statistics(2), statistics(4), partition_statistics(2), partition_statistics(4)],
        [{"action": "remove-statistics", "snapshot-id": 4}, {"action": "remove-statistics", "snapshot-id": 9}],
        [{"action": "remove-partition-statistics", "snapshot-id": 4}],
        [{"action": "remove-snapshot-ref", "ref-name": "audit"}, {"action": "remove-snapshot-ref", "ref-name": "none"}],
        [snapshot(5, at, version, **{"parent-snapshot-id": 3}), main(5)],
        # a version in the middle of the log
        [{"action": "remove-snapshots", "snapshot-ids": [3, 77]}],
        [{"action": "remove-schemas", "schema-ids": [0]}, {"action": "remove-partition-specs", "spec-ids": [0]}],
        # a rollback
        [main(2)],
        [{"action": "set-location", "location": f"{LOCATION}-moved/"}],
        [{"action": "remove-snapshot-ref", "ref-name": "main"}],
        # an empty update
        [
            {"action": "remove-properties", "removals": []},
            {"action": "upgrade-format-version", "format-version": version},
        ],
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_pyiceberg_and_icebergs_core_produce_equal_metadata(core: JvmApplier, version: int) -> None:
    python = PyicebergApplier()
    text, theirs = core.create(request(version), LOCATION), python.create(request(version), LOCATION)
    assert first_difference(comparable(text), comparable(theirs)) is None
    # the clock's time when the snapshots are created
    steps = story(version, int(time.time() * 1000) - 10)
    for number, updates in enumerate(steps, 1):
        location, condition = f"{LOCATION}/metadata/v{number}.metadata.json", [same_table(text)]
        after, theirs = (applier.apply(text, location, condition, updates) for applier in (core, python))
        assert first_difference(comparable(after), comparable(theirs)) is None, updates
        assert (after == text) == (theirs == text) == (number == len(steps)), updates
        # each reads the other's output
        text = theirs if number % 2 else after
    names = [entry["metadata-file"].rpartition("/")[2] for entry in json.loads(text)["metadata-log"]]
    assert names == [f"v{number}.metadata.json" for number in range(len(steps) - 3, len(steps))]
    created, theirs = (
        applier.apply("", "", [{"type": "assert-create"}], creation(version)) for applier in (core, python)
    )
    assert first_difference(comparable(created), comparable(theirs)) is None
    assert json.loads(theirs)["table-uuid"] == UUID


def same_table(text: str) -> dict[str, Any]:
    """Return the requirement that a table is still the same."""
    return {"type": "assert-table-uuid", "uuid": json.loads(text)["table-uuid"]}


FAILING: list[dict[str, Any]] = [
    {"type": "assert-create"},
    {"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 8},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
    {"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": 1},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 8},
    {"type": "assert-current-schema-id", "current-schema-id": 8},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 8},
    {"type": "assert-default-spec-id", "default-spec-id": 8},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 8},
]


def test_both_refuse_the_same_requests_for_the_same_reason(core: JvmApplier) -> None:
    at, python = int(time.time() * 1000) - 10, PyicebergApplier()
    text = python.apply(python.create(request(3), LOCATION), "v1", [], [snapshot(1, at, 3), main(1)])
    of_views = {"action": "set-current-view-version", "view-version-id": 1}
    refused: list[tuple[type[Exception], list[dict[str, Any]], list[dict[str, Any]]]] = [
        *((CommitFailedException, [condition], []) for condition in FAILING),
        # snapshots of writers that lost to another one
        (CommitFailedException, [], [snapshot(2, at, 3, **{"first-row-id": 4})]),
        (CommitFailedException, [], [snapshot(2, at, 3, **{"sequence-number": 1})]),
        (InputError, [], [snapshot(1, at, 3, **{"sequence-number": 2})]),
        (InputError, [], [snapshot(2, at, 3, **{"first-row-id": None})]),
        (InputError, [], [main(8)]),
        (InputError, [], [ref("main", 1, "tag")]),
        (InputError, [], [{"action": "set-current-schema", "schema-id": 8}]),
        (InputError, [], [{"action": "set-current-schema", "schema-id": -1}]),
        (InputError, [], [{"action": "remove-schemas", "schema-ids": [0]}]),
        (InputError, [], [snapshot(2, at - 90_000, 3), main(2)]),
        (UnsupportedError, [], [of_views]),
        (UnsupportedError, [], [{"action": "of-the-future"}]),
        (UnsupportedError, [{"type": "of-the-future"}], []),
    ]
    for error, *arguments in refused:
        for applier in (core, python):
            try:
                applier.apply(text, "v2", *arguments)
            except Exception as answer:
                assert type(answer) is error, (applier, arguments, answer)
            else:
                pytest.fail(f"{applier} took {arguments}")
    absent = {"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": None}
    empty = python.create(request(3), LOCATION)
    for applier in (core, python):
        assert applier.apply(empty, "v1", [absent, same_table(empty)], []) == empty
        with pytest.raises(InputError, match="assert-create as their only"):
            applier.apply("", "", [same_table(empty)], creation(3))


def test_icebergs_core_applies_every_format_version_in_short_lived_threads(core: JvmApplier) -> None:
    def move(version: int) -> Any:
        text = core.create(request(version), LOCATION)
        with pytest.raises(CommitFailedException, match="table already exists"):
            core.apply(text, "v1", [{"type": "assert-create"}], [])
        return json.loads(core.apply(text, "v1", [same_table(text)], [set_properties(a="b")]))

    moved: list[Any] = []
    # like a server's thread for each connection
    threads = [threading.Thread(target=lambda version=n: moved.append(move(version))) for n in (1, 2, 3, 4) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one["format-version"] for one in moved) == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert all(one["properties"]["a"] == "b" and one["metadata-log"][0]["metadata-file"] == "v1" for one in moved)
