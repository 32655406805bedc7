"""pyiceberg's applier refuses metadata and requests that pyiceberg would apply incompletely."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from lakecdc.contract.errors import InputError, UnsupportedError
from lakecdc.object_store.pyiceberg_applier import PyicebergApplier, first_difference
from tests.lakecdc.object_store.metadata_requests import (
    LOCATION,
    comparable,
    field,
    main,
    partition_statistics,
    request,
    schema,
    set_properties,
    snapshot,
    statistics,
)

APPLIER = PyicebergApplier()
CHANGE = [set_properties(a="b")]


def table(version: int = 2) -> dict[str, Any]:
    """Return the metadata of a table with a snapshot and statistics."""
    text = APPLIER.create(request(version), LOCATION)
    updates = [snapshot(1, int(time.time() * 1000) - 10, version), main(1), statistics(1), partition_statistics(1)]
    document: dict[str, Any] = json.loads(APPLIER.apply(text, "v1", [], updates))
    return document


def put(document: Any, path: str, value: Any) -> None:
    """Set a member of a document by its path; numbers are indexes of lists."""
    *parents, last = (int(name) if name.isdigit() else name for name in path.split("/"))
    for name in parents:
        document = document[name]
    document[last] = value


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("encryption-keys", "metadata.encryption-keys"),
        ("snapshots/0/key-id", "metadata.snapshots[0].key-id"),
        ("schemas/0/fields/0/collation", "metadata.schemas[0].fields[0].collation"),
        ("schemas/0/fields/2/type/fields/0/more", "metadata.schemas[0].fields[2].type.fields[0].more"),
        ("partition-specs/0/fields/0/more", "metadata.partition-specs[0].fields[0].more"),
        ("sort-orders/0/fields/0/more", "metadata.sort-orders[0].fields[0].more"),
        ("refs/main/more", "metadata.refs.main.more"),
        ("statistics/0/blob-metadata/0/more", "metadata.statistics[0].blob-metadata[0].more"),
        ("partition-statistics/0/more", "metadata.partition-statistics[0].more"),
        ("metadata-log/0/more", "metadata.metadata-log[0].more"),
        ("of-the-future", "metadata.of-the-future"),
    ],
)
def test_metadata_that_pyiceberg_would_drop_is_named(path: str, named: str) -> None:
    document = table(3)
    put(document, path, "x")
    with pytest.raises(UnsupportedError) as refused:
        APPLIER.apply(json.dumps(document), "v2", [], CHANGE)
    assert f" {named}." in str(refused.value) and "job on Spark" in str(refused.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("format-version", 1),
        ("format-version", 4),
        ("statistics/0/blob-metadata/0/type", "bloom-filter-v1"),
        ("schemas/0/fields/1/type", "variant"),
        ("table-uuid", None),
        ("next-row-id", None),
    ],
)
def test_metadata_that_pyiceberg_cannot_read_or_write_is_refused(path: str, value: Any) -> None:
    document = table(3)
    put(document, path, value)
    with pytest.raises(UnsupportedError, match="job on Spark"):
        APPLIER.apply(json.dumps(document), "v2", [], CHANGE)


def test_equivalent_metadata_of_other_writers_is_accepted() -> None:
    document = table()
    expected = comparable(APPLIER.apply(json.dumps(document), "v2", [], CHANGE))
    # default values, null for absent, types with other spaces, and the catalog's own member
    for name in ("refs", "partition-statistics"):
        expected[name] = document[name] = {} if name == "refs" else []
    expected["refs"] = {"main": {"snapshot-id": 1, "type": "branch"}}
    document |= {"encryption-keys": [], "next": None, "lakecdc-commit-id": "77aa"}
    document["schemas"][0]["fields"][4]["type"]["value"] = "decimal(9,2)"
    document["schemas"][0]["fields"][0] |= {"initial-default": None}
    text = APPLIER.apply(json.dumps(document), "v2", [], CHANGE)
    assert first_difference(expected, comparable(text)) is None
    assert "lakecdc-commit-id" not in text


def test_the_type_that_duckdb_gives_partition_specs_is_ignored() -> None:
    plain = request(2)
    spec = {**plain["partition-spec"], "type": "struct"}
    created = APPLIER.create({**plain, "partition-spec": spec}, LOCATION)
    assert json.loads(created)["partition-specs"] == [plain["partition-spec"]]
    assert APPLIER.apply(created, "v1", [], [{"action": "add-spec", "spec": spec}]) == created
    with pytest.raises(UnsupportedError, match=r"partition-spec\.type"):
        APPLIER.create({**plain, "partition-spec": {**spec, "type": "map"}}, LOCATION)


@pytest.mark.parametrize(
    ("update", "named"),
    [
        ({"action": "add-encryption-key", "encryption-key": {}}, "updates[1]: "),
        ({"action": "upgrade-format-version", "format-version": 3}, "version 2 to 3"),
        ({**main(1), "more": 1}, "updates[1].more"),
        (snapshot(2, 0, 2, **{"key-id": "k"}), "updates[1].snapshot.key-id"),
        (
            {"action": "add-schema", "schema": schema(1, field(11, "n", "long", more=1))},
            "updates[1].schema.fields[5].more",
        ),
        ({"action": "remove-properties", "removed": ["a"]}, "updates[1].remove-properties.removals"),
        ({"action": "add-spec", "spec": {"fields": [{"source-ids": [1, 2]}]}}, "updates[1].add-spec.spec"),
    ],
)
def test_updates_that_pyiceberg_does_not_fully_support_are_refused(update: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedError) as refused:
        APPLIER.apply(json.dumps(table()), "v2", [], [*CHANGE, update])
    assert named in str(refused.value)


def test_requirements_that_pyiceberg_does_not_fully_support_are_refused() -> None:
    for requirement in ({"type": "assert-view-uuid", "uuid": "x"}, {"type": "assert-create", "more": 1}):
        with pytest.raises(UnsupportedError, match=r"requirements\[0\]"):
            APPLIER.apply(json.dumps(table()), "v2", [requirement], CHANGE)


def test_a_new_table_that_pyiceberg_would_create_incompletely_is_refused() -> None:
    default = schema(0, {**field(11, "note", "string"), "initial-default": "x", "write-default": "x"})
    refused = [
        (request(3, schema=default), "schema.fields[5].initial-default"),
        (request(2, more={"a": 1}), "the request.more"),
        (request(4), "format v4"),
        (request(1), "format v1"),
    ]
    for creation, named in refused:
        with pytest.raises(UnsupportedError) as error:
            APPLIER.create(creation, LOCATION)
        assert named in str(error.value)
    with pytest.raises(InputError):
        APPLIER.create(request(2, schema=schema(0, field(11, "at", "timestamp_ns"))), LOCATION)


def test_updates_that_leave_an_invalid_table_are_refused() -> None:
    create = [{"type": "assert-create"}]
    with pytest.raises(InputError, match="needs a current schema"):
        APPLIER.apply("", "", create, CHANGE)
    with pytest.raises(InputError, match="set none|need assert-create as their only"):
        APPLIER.apply("", "", [], CHANGE)
    with pytest.raises(UnsupportedError, match="add and remove snapshot 2"):
        removal = {"action": "remove-snapshots", "snapshot-ids": [2]}
        APPLIER.apply(json.dumps(table()), "v2", [], [snapshot(2, int(time.time() * 1000), 2), removal])
