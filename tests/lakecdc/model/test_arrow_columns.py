"""Columns as Arrow: bulk conversion equals the parser's result for each value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakecdc.ingest.envelopes.json_values import UnreadableError, parse_json
from lakecdc.model.arrow_columns import ArrowColumn
from lakecdc.model.columns import ColumnType
from lakecdc.model.tokens import MisfitError, Nested, to_text
from tests.lakecdc.model.corpus import VALUES
from tests.lakecdc.model.test_columns import GOLDEN

COLUMNS = [ColumnType(g["type"], g["encoding"], g["scale"], tuple(g["names"])) for g in GOLDEN]


def values() -> list[Any]:
    """Return all values of the corpus that are JSON."""
    parsed = []
    for text in VALUES:
        try:
            parsed.append(parse_json(text))
        except UnreadableError:
            continue
    return parsed


def expected(column: ColumnType, value: Any) -> tuple[pa.Array, list[int]]:
    """Return the parser's result for a value."""
    arrow = ArrowColumn(column).arrow
    try:
        parsed = column.parser()(Nested(to_text(value)) if isinstance(value, list | dict) else value)
        return pa.array([parsed], arrow), []
    except (MisfitError, pa.ArrowException, OverflowError):
        return pa.array([None], arrow), [0]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda each: f"{each.sql_type}-{each.encoding}-{each.scale}")
def test_each_value_equals_the_parsers_result(column: ColumnType) -> None:
    convert = ArrowColumn(column).convert
    different = []
    for value in values():
        converted, parsed = convert([value]), expected(column, value)
        if converted[1] != parsed[1] or repr(converted[0].to_pylist()) != repr(parsed[0].to_pylist()):
            different.append((value, converted, parsed))
    assert different == []


@pytest.mark.parametrize("column", COLUMNS, ids=lambda each: f"{each.sql_type}-{each.encoding}-{each.scale}")
def test_a_value_that_does_not_fit_affects_no_other(column: ColumnType) -> None:
    together, misfits = ArrowColumn(column).convert(values())
    alone = [expected(column, value) for value in values()]
    assert repr(together.to_pylist()) == repr([array[0].as_py() for array, _ in alone])
    assert misfits == [place for place, (_, misfit) in enumerate(alone) if misfit]
