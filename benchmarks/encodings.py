"""Encode change events in each measured format, and read them by another engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_MILLISECONDS = 1_750_000_000_000
_TABLE = '"database":"shop","table":"orders"'
_MYSQL = {
    "id": "bigint",
    "customer": "varchar(50)",
    "email": "varchar(50)",
    "status": "varchar(20)",
    "amount": "decimal(12,2)",
    "version": "bigint",
    "updated_at": "datetime(6)",
    "note": "text",
}
_TYPES = json.dumps(_MYSQL, separators=(",", ":"))


@dataclass(frozen=True)
class Encoding:
    """A format of change events.

    :param line: event by its number, its op (``r``, ``c``, ``u``, ``d``) and the row before and after as JSON.
    :param columns: members of an event, as DuckDB reads them.
    :param key: SQL of the row's key.
    :param version: SQL of its version.
    :param order: SQL of a value that rises with every event.
    :param is_delete: SQL condition.
    :param deletes: whether an event can be a delete.
    :param text: whether values are written as text.
    :param settings: settings of the source.
    :param rows: SQL of a relation of the events, with the fields ``{files}`` and ``{columns}``.
    """

    line: Callable[[int, str, str, str], str]
    columns: str
    key: str
    version: str
    order: str
    is_delete: str
    deletes: bool = True
    text: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    rows: str = "read_ndjson('{files}', columns = {{{columns}}})"


def _debezium(number: int, op: str, before: str, after: str) -> str:
    position = 1000 + number * 8
    sequence = json.dumps(json.dumps([str(position - 4), str(position)]))
    source = (
        '{"connector":"postgresql","db":"shop","schema":"shop","table":"orders","snapshot":"false",'
        f'"lsn":{position},"ts_ms":{_MILLISECONDS + number},"sequence":{sequence}}}'
    )
    before = before if op in "ud" else "null"
    return f'{{"before":{before},"after":{after},"source":{source},"op":"{op}","ts_ms":{_MILLISECONDS + number}}}\n'


def _flat(number: int, op: str, before: str, after: str) -> str:
    deleted = "true" if op == "d" else "false"
    facts = f'"__table":"orders","__lsn":{1000 + number * 8},"__source_ts_ms":{_MILLISECONDS + number}'
    return f'{(before if op == "d" else after)[:-1]},"__op":"{op}",{facts},"__deleted":"{deleted}"}}\n'


def _maxwell(number: int, op: str, before: str, after: str) -> str:
    kind = {"c": "insert", "d": "delete"}.get(op, "update")
    place = (
        f'"ts":{_MILLISECONDS // 1000 + number // 1000},"position":"binlog.000007:{1000 + number * 8}","xid":{number}'
    )
    old = f',"old":{_changed(before)}' if kind == "update" else ""
    return f'{{{_TABLE},"type":"{kind}",{place},"commit":true,"data":{before if op == "d" else after}{old}}}\n'


def _canal(number: int, op: str, before: str, after: str) -> str:
    kind = {"c": "INSERT", "d": "DELETE"}.get(op, "UPDATE")
    place = f'"es":{_MILLISECONDS + number},"id":{number},"isDdl":false,"mysqlType":{_TYPES}'
    old = f"[{_changed(before)}]" if kind == "UPDATE" else "null"
    facts = f'"pkNames":["id"],"sql":"","ts":{_MILLISECONDS + number},"type":"{kind}"'
    return f'{{"data":[{before if op == "d" else after}],{_TABLE},{place},"old":{old},{facts}}}\n'


def _csv(number: int, op: str, before: str, after: str) -> str:
    return ",".join(map(str, json.loads(after).values())) + "\n"


def _xml(number: int, op: str, before: str, after: str) -> str:
    members = "".join(f"<{name}>{value}</{name}>" for name, value in json.loads(after).items())
    return f"<order>{members}</order>\n"


def _changed(before: str) -> str:
    """Return the members of a row that its update changed, without the key."""
    return "{" + before[before.index('"status"') :]


_ROW = "STRUCT(id BIGINT, version BIGINT)"
ENCODINGS = {
    "debezium-json": Encoding(
        _debezium,
        f"before: '{_ROW}', after: '{_ROW}', op: 'VARCHAR', source: 'STRUCT(lsn BIGINT)'",
        'coalesce("after".id, "before".id)',
        '"after".version',
        "source.lsn",
        "op = 'd'",
    ),
    "debezium-flat-json": Encoding(
        _flat,
        "id: 'BIGINT', version: 'BIGINT', __lsn: 'BIGINT', __op: 'VARCHAR'",
        "id",
        "version",
        "__lsn",
        "__op = 'd'",
    ),
    "maxwell-json": Encoding(
        _maxwell,
        f"type: 'VARCHAR', xid: 'BIGINT', data: '{_ROW}'",
        "data.id",
        "data.version",
        "xid",
        "type = 'delete'",
    ),
    "canal-json": Encoding(
        _canal,
        f"type: 'VARCHAR', es: 'BIGINT', data: '{_ROW}[]'",
        "data[1].id",
        "data[1].version",
        "es",
        "type = 'DELETE'",
        text=True,
    ),
    "json": Encoding(
        lambda number, op, before, after: f"{after}\n",
        "id: 'BIGINT', version: 'BIGINT'",
        "id",
        "version",
        "version",
        "false",
        deletes=False,
        settings={"order_by": "version"},
    ),
    "csv": Encoding(
        _csv,
        f"names = {list(_MYSQL)}",
        "id",
        "version",
        "version",
        "false",
        deletes=False,
        settings={"order_by": "version", "csv": {"header": False, "names": list(_MYSQL)}},
        rows="read_csv('{files}', header = false, {columns})",
    ),
    "xml": Encoding(
        _xml,
        "",
        "id",
        "version",
        "version",
        "false",
        deletes=False,
        settings={"order_by": "version", "xml": {"row_tag": "order"}},
        rows="(SELECT unnest(regexp_extract_all(content, '<id>([0-9]+)<', 1))::BIGINT AS id, "
        "unnest(regexp_extract_all(content, '<version>([0-9]+)<', 1))::BIGINT AS version FROM read_text('{files}'))",
    ),
}
