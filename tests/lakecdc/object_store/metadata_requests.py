"""Requests of clients that change a table's metadata, and comparable forms of metadata."""

from __future__ import annotations

import json
from typing import Any

LOCATION = "s3://lake/shop/orders-0a1b2c3d"
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


def field(number: int, name: str, kind: Any, required: bool = False, **rest: Any) -> dict[str, Any]:
    """Return a column of a schema."""
    return {"id": number, "name": name, "type": kind, "required": required, **rest}


def schema(number: int, *more: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with nested columns and ``more`` columns."""
    nested = {"type": "struct", "fields": [field(6, "zip", "string"), field(7, "town", "string", doc="as written")]}
    tags: dict[str, Any] = {"type": "list", "element-id": 8, "element": "string", "element-required": True}
    pairs: dict[str, Any] = {
        "type": "map",
        "key-id": 9,
        "key": "string",
        "value-id": 10,
        "value": "decimal(9, 2)",
        "value-required": False,
    }
    columns = [
        field(1, "id", "long", True, doc="the key"),
        field(2, "day", "date"),
        field(3, "address", nested),
        field(4, "tags", tags),
        field(5, "prices", pairs),
    ]
    return {"type": "struct", "schema-id": number, "identifier-field-ids": [1], "fields": [*columns, *more]}


def request(version: int, **rest: Any) -> dict[str, Any]:
    """Return a request for a new partitioned and sorted table."""
    day = {"source-id": 2, "field-id": 1000, "transform": "month", "name": "day_month"}
    order = {"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
    return {
        "name": "orders",
        "schema": schema(0),
        "partition-spec": {"spec-id": 0, "fields": [day]},
        "write-order": {"order-id": 1, "fields": [order]},
        "properties": {"format-version": str(version), "owner": "sales"},
        **rest,
    }


def snapshot(number: int, at: int, version: int, **rest: Any) -> dict[str, Any]:
    """Return an ``add-snapshot`` whose number is also its sequence number and time."""
    added = {
        "snapshot-id": number,
        "sequence-number": number,
        "timestamp-ms": at + number,
        "summary": {"operation": "append", "added-records": "10"},
        "manifest-list": f"{LOCATION}/metadata/snap-{number}.avro",
        "schema-id": 0,
        **({"parent-snapshot-id": number - 1} if number > 1 else {}),
        **({"first-row-id": 10 * (number - 1), "added-rows": 10} if version >= 3 else {}),
    }
    return {"action": "add-snapshot", "snapshot": {**added, **rest}}


def main(number: int) -> dict[str, Any]:
    """Set the main branch to a snapshot."""
    return {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number}


def statistics(number: int) -> dict[str, Any]:
    """Set the statistics of a snapshot."""
    blob = {"type": "apache-datasketches-theta-v1", "snapshot-id": number, "sequence-number": number, "fields": [1]}
    file = {"snapshot-id": number, "statistics-path": f"{LOCATION}/metadata/{number}.puffin", "file-size-in-bytes": 9}
    file |= {"file-footer-size-in-bytes": 5, "blob-metadata": [{**blob, "properties": {"ndv": "4"}}]}
    return {"action": "set-statistics", "snapshot-id": number, "statistics": file}


def partition_statistics(number: int) -> dict[str, Any]:
    """Set the statistics of a snapshot's partitions."""
    file = {"snapshot-id": number, "statistics-path": f"{LOCATION}/metadata/{number}.parquet", "file-size-in-bytes": 9}
    return {"action": "set-partition-statistics", "partition-statistics": file}


def set_properties(**updates: str) -> dict[str, Any]:
    """Set properties of the table."""
    return {"action": "set-properties", "updates": updates}


def creation(version: int) -> list[dict[str, Any]]:
    """Return the updates that create a table, as Iceberg's Java client sends them."""
    created = request(version)
    return [
        {"action": "assign-uuid", "uuid": UUID},
        {"action": "upgrade-format-version", "format-version": version},
        {"action": "add-schema", "schema": created["schema"], "last-column-id": 10},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": created["partition-spec"]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": created["write-order"]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": LOCATION},
        set_properties(owner="sales"),
    ]


def comparable(text: str) -> dict[str, Any]:
    """Return metadata without values that differ between calls, and with sets in a fixed order."""
    document = json.loads(text)
    assert document.pop("last-updated-ms") > 0
    for name in ("statistics", "partition-statistics"):
        document[name] = sorted(document[name], key=lambda file: int(file["snapshot-id"]))
    times = {one["timestamp-ms"] for one in document["snapshots"]}
    for entry in document["snapshot-log"]:
        # a rollback has the time of the call
        entry["timestamp-ms"] = entry["timestamp-ms"] if entry["timestamp-ms"] in times else "now"
    return {name: value for name, value in document.items() if name != "table-uuid"}
