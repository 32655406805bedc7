"""One history of a products table, written down by seven capture tools.

The statements and the traps of each encoding follow the public sample files of Apache Flink's JSON formats.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

Row = dict[str, Any]
Statement = tuple[str, list[tuple[Row | None, Row | None]]]
COLUMNS = ("id", "name", "description", "weight")
BEGAN = 1_589_373_515


def row(id: int, name: str, description: str, weight: float) -> Row:
    return {"id": id, "name": name, "description": description, "weight": weight}


FIRST = [
    row(101, "scooter", "Small 2-wheel scooter", 3.14),
    row(102, "car battery", "12V car battery", 8.1),
    row(103, "12-pack drill bits", "12-pack of drill bits with sizes ranging from #40 to #3", 0.8),
    row(104, "hammer", "12oz carpenter's hammer", 0.75),
    row(105, "hammer", "14oz carpenter's hammer", 0.875),
    row(106, "hammer", "16oz carpenter's hammer", 1.0),
    row(107, "rocks", "box of assorted rocks", 5.3),
    row(108, "jacket", "water resistent black wind breaker", 0.1),
    row(109, "spare tire", "24 inch spare tire", 22.2),
]
H106 = row(106, "hammer", "18oz carpenter hammer", 1.0)
R107 = row(107, "rocks", "box of assorted rocks", 5.1)
J110 = row(110, "jacket", "water resistent white wind breaker", 0.2)
S111 = row(111, "scooter", "Big 2-wheel scooter ", 5.18)
NEW110 = row(110, "jacket", "new water resistent white wind breaker", 0.5)
NEW111 = {**S111, "weight": 5.17}
#: op and row images of each statement
STORY: list[Statement] = [
    ("r", [(None, r) for r in FIRST]),
    ("u", [(FIRST[5], H106)]),
    ("u", [(FIRST[6], R107)]),
    ("c", [(None, J110)]),
    ("c", [(None, S111)]),
    ("u", [(J110, NEW110)]),
    ("u", [(S111, NEW111)]),
    ("d", [(NEW111, None)]),
]
#: members that the samples of Canal and Maxwell add
LONGER: list[Statement] = [
    *STORY,
    ("u", [(FIRST[0], {**FIRST[0], "weight": 5.17}), (FIRST[1], {**FIRST[1], "weight": 5.17})]),
    ("d", [({**FIRST[1], "weight": 5.17}, None), (FIRST[2], None)]),
]


def final(story: list[Statement]) -> list[tuple[Any, ...]]:
    """Return the table's rows after the story, by key."""
    rows: dict[int, Row] = {}
    for _, images in story:
        for before, after in images:
            if before is not None:
                del rows[before["id"]]
            if after is not None:
                rows[after["id"]] = after
    return [tuple(r[c] for c in COLUMNS) for _, r in sorted(rows.items())]


def events(story: list[Statement]) -> Iterator[tuple[int, str, Row | None, Row | None, bool]]:
    """Yield statement number, op, before, after, and whether it is the last row of its statement."""
    for number, (op, images) in enumerate(story):
        for nth, (before, after) in enumerate(images):
            yield number, op, before, after, nth == len(images) - 1


_FIELDS = [
    {"type": "int32", "optional": False, "field": "id"},
    {"type": "string", "optional": False, "field": "name"},
    {"type": "string", "optional": True, "field": "description"},
    {"type": "double", "optional": True, "field": "weight"},
]
_SCHEMA = {
    "type": "struct",
    "fields": [
        {"type": "struct", "fields": _FIELDS, "optional": True, "field": "before"},
        {"type": "struct", "fields": _FIELDS, "optional": True, "field": "after"},
        {"type": "string", "optional": False, "field": "op"},
    ],
    "name": "dbserver1.inventory.products.Envelope",
}


def debezium_mysql(story: list[Statement]) -> list[str]:
    """Encode snapshot rows with op ``c``, time 0 and one position, as an old connector; binlog 10 sorts before 9."""
    lines = []
    for number, op, before, after, _ in events(story):
        first = op == "r"
        source = {
            "connector": "mysql",
            "ts_ms": 0 if first else (BEGAN + number) * 1000,
            "snapshot": "true" if first else "false",
            "db": "inventory",
            "table": "products",
            "gtid": None,
            "file": "mysql-bin.000009" if number < 4 else "mysql-bin.000010",
            "pos": 154 if first else 900 - 100 * number if number >= 4 else 500 + 100 * number,
            "row": 0,
        }
        if number >= 4:
            source["pos"] = 100 * number
        event = {"before": before, "after": after, "source": source, "op": "c" if first else op, "ts_ms": BEGAN * 1000}
        lines.append(json.dumps({**event, "transaction": None}))
    return lines


def debezium_mysql_with_schema(story: list[Statement]) -> list[str]:
    return [json.dumps({"schema": _SCHEMA, "payload": json.loads(line)}) for line in debezium_mysql(story)]


def debezium_postgres(story: list[Statement]) -> list[str]:
    """Encode as an old connector: no ``sequence``, and all snapshot rows share an LSN."""
    lines = []
    for number, op, before, after, _ in events(story):
        source = {
            "connector": "postgresql",
            "ts_ms": (BEGAN + number) * 1000,
            "snapshot": "true" if op == "r" else "false",
            "db": "postgres",
            "schema": "inventory",
            "table": "products",
            "txId": 601 + number,
            "lsn": 34_078_720 + 1000 * number,
            "xmin": None,
        }
        lines.append(json.dumps({"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}))
    return lines


def debezium_flat(story: list[Statement]) -> list[str]:
    """Encode rewritten deletes; nulls of a deleted row become defaults."""
    lines = []
    for number, op, before, after, _ in events(story):
        facts = {"__op": op, "__table": "products", "__lsn": 1000 + number, "__source_ts_ms": (BEGAN + number) * 1000}
        state = after or {"id": (before or {})["id"], "name": "", "description": None, "weight": None}
        lines.append(json.dumps({**state, **facts, "__deleted": "true" if op == "d" else "false"}))
    return lines


def canal(story: list[Statement]) -> list[str]:
    """Encode many rows per message, values as text, old values of changed columns, DDL in between, ids out of order."""
    names = {"r": "INSERT", "c": "INSERT", "u": "UPDATE", "d": "DELETE"}
    types = {"id": "INTEGER", "name": "VARCHAR(255)", "description": "VARCHAR(512)", "weight": "FLOAT"}
    lines = []
    for number, (op, images) in enumerate(story):
        data = [{k: str(v) for k, v in (after or before or {}).items()} for before, after in images]
        changed = [
            {k: str(v) for k, v in before.items() if after[k] != v} for before, after in images if before and after
        ]
        message = {
            "data": data,
            "database": "inventory",
            "es": (BEGAN + 3 * number) * 1000,
            "id": 3 + number,
            "isDdl": False,
            "mysqlType": types,
            "old": changed or None,
            "pkNames": ["id"],
            "sql": "",
            "table": "products",
            "ts": (BEGAN + 3 * number) * 1000 + 477,
            "type": names[op],
        }
        lines.append(json.dumps(message))
    ddl = {"data": None, "database": "inventory", "es": BEGAN * 1000, "id": 99, "isDdl": True, "mysqlType": None}
    lines.insert(-1, json.dumps({**ddl, "sql": "CREATE TABLE `x` (`a` int)", "table": "x", "type": "CREATE"}))
    return lines


def maxwell(story: list[Statement]) -> list[str]:
    """Encode with ``commit`` instead of ``xoffset`` in the last row of a transaction."""
    names = {"r": "insert", "c": "insert", "u": "update", "d": "delete"}
    lines, nth, statement = [], 0, -1
    for number, op, before, after, last in events(story):
        nth, statement = (nth + 1 if number == statement else 0), number
        place = {"commit": True} if last else {"xoffset": nth}
        message = {"database": "test", "table": "products", "type": names[op], "ts": BEGAN + number // 2}
        message |= {"xid": 7125 + 17 * number, **place, "data": after or before, "primary_key_columns": ["id"]}
        if op == "u":
            assert before and after
            message["old"] = {k: v for k, v in before.items() if after[k] != v}
        lines.append(json.dumps(message))
    return lines


def ogg(story: list[Statement]) -> list[str]:
    """Encode with times that go backwards while ``pos`` rises, and a misspelt member for the keys."""
    names = {"r": "I", "c": "I", "u": "U", "d": "D"}
    lines = []
    for nth, (number, op, before, after, _) in enumerate(events(story)):
        moment = datetime.fromtimestamp(BEGAN + (10 - number if number > 4 else number), UTC)
        lines.append(
            json.dumps(
                {
                    "table": "OGG.PRODUCTS",
                    "pos": f"{143 + nth:023d}",
                    "priamry_keys": ["id"],
                    **({"before": before} if before else {}),
                    "after": after,
                    "op_type": names[op],
                    "op_ts": moment.strftime("%Y-%m-%d %H:%M:%S.000000"),
                }
            )
        )
    return lines


def dms(story: list[Statement]) -> list[str]:
    """Encode old values in the same object under a prefix; control records come in between."""
    names = {"r": "load", "c": "insert", "u": "update", "d": "delete"}
    control = {"record-type": "control", "operation": "create-table", "schema-name": "test", "table-name": "products"}
    lines = [json.dumps({"metadata": {**control, "timestamp": "2020-05-13T12:00:00.000000Z"}})]
    for number, op, before, after, _ in events(story):
        moment = datetime.fromtimestamp(BEGAN + number, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = {f"BI_{k}": v for k, v in (before or {}).items() if op == "u"}
        own: Row = {"record-type": "data", "operation": names[op], "timestamp": moment, "transaction-id": 670014899490}
        metadata: Row = {**control, **own}
        lines.append(json.dumps({"data": {**old, **(after or before or {})}, "metadata": metadata}))
    return lines


#: format, encoder, story
ENCODINGS: dict[str, tuple[str, Callable[[list[Statement]], list[str]], list[Statement]]] = {
    "debezium-mysql": ("debezium-json", debezium_mysql, STORY),
    "debezium-mysql-schema": ("debezium-json", debezium_mysql_with_schema, STORY),
    "debezium-postgres": ("debezium-json", debezium_postgres, STORY),
    "debezium-flat": ("debezium-flat-json", debezium_flat, STORY),
    "canal": ("canal-json", canal, LONGER),
    "maxwell": ("maxwell-json", maxwell, LONGER),
    "ogg": ("ogg-json", ogg, STORY),
    "dms": ("dms-json", dms, STORY),
}
