"""Tables with a column that has had more than one type."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.iceberg.table import has_promoted_column


def schema(**types: Any) -> dict[str, Any]:
    fields = [{"id": place, "name": name, "type": kind} for place, (name, kind) in enumerate(types.items(), 1)]
    return {"type": "struct", "fields": fields}


def nested(kind: str) -> list[dict[str, Any]]:
    """Return a type as a member of each kind of nested type."""
    inner = {"type": "struct", "fields": [{"id": 6, "name": "x", "type": kind}]}
    return [
        inner,
        {"type": "list", "element-id": 7, "element": kind},
        {"type": "list", "element-id": 7, "element": inner},
        {"type": "map", "key-id": 8, "key": kind, "value-id": 9, "value": "string"},
        {"type": "map", "key-id": 8, "key": "string", "value-id": 9, "value": inner},
    ]


@pytest.mark.parametrize(("old", "new"), [("int", "long"), *zip(nested("int"), nested("long"), strict=True)])
def test_widened_columns_are_recognized_at_any_depth(old: Any, new: Any) -> None:
    assert has_promoted_column([schema(id="int", v=old), schema(id="int", v=old), schema(id="int", v=new)])
    assert not has_promoted_column([schema(id="int", v=old), schema(key="int", v=old), schema(id="int")])
