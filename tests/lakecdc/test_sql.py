"""Equality of values in SQL."""

from __future__ import annotations

import itertools

import pytest
from pyspark.sql import functions as F

from lakecdc.sql import exact_value
from tests.conftest import Lake

_TIMES = [f"TIMESTAMP'2024-01-01 00:00:00.00000{n}'" for n in (1, 2)]
_DOUBLES = ["0.0D", "-0.0D", "double('NaN')", "1.5D", "CAST(NULL AS double)"]
_VARIANTS = [
    *("1", '"1"', "1.5", '{"a": 1, "b": null}', '{"a": 1}', "[1, null]", "null"),
]
DIFFERENT = {
    "double": _DOUBLES,
    "float": [text.replace("D", "F").replace("double", "float") for text in _DOUBLES],
    "struct": [f"named_struct('dotted.name', {one}, 'at', {time})" for one in _DOUBLES for time in _TIMES],
    "array": [
        *(f"array({one}, 1.0D)" for one in _DOUBLES),
        *("array(1.0D, 0.0D)", "array(1.0D)", "CAST(array() AS array<double>)", "CAST(NULL AS array<double>)"),
    ],
    "map": [
        *(f"map('a', {time}, 'b', NULL)" for time in _TIMES),
        *(f"map('a', NULL, 'b', {time})" for time in _TIMES),
        *("map('a', CAST(NULL AS timestamp))", "CAST(map() AS map<string, timestamp>)"),
        "CAST(NULL AS map<string, timestamp>)",
    ],
    "nested": [f"array(named_struct('m', map(named_struct('k', 1), array({one}))))" for one in _DOUBLES],
    "variant": [
        *(f"parse_json('{text}')" for text in _VARIANTS),
        *(f"to_variant_object(named_struct('at', {time}))" for time in _TIMES),
        *(f"CAST({value} AS variant)" for value in ("1.5D", "-0.0D", "0.0D", "'2024-01-01'", "DATE'2024-01-01'")),
        "CAST(NULL AS variant)",
    ],
}
SAME = [
    ("map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)"),
    ("named_struct('m', map('a', -0.0D, 'b', NULL))", "named_struct('m', map('b', NULL, 'a', -0.0D))"),
    ("double('NaN')", "-double('NaN')"),
    ("""parse_json('{"a": 1, "b": [2]}')""", """parse_json('{"b": [2], "a": 1}')"""),
]


@pytest.mark.parametrize("kind", DIFFERENT)
def test_different_values_have_different_forms(lake: Lake, kind: str) -> None:
    texts = DIFFERENT[kind]
    columns = [f"{text} AS c{place}" for place, text in enumerate(texts)]
    rows = lake.sql(f"SELECT {', '.join(columns)}")
    forms = rows.select(*[exact_value(F.col(f.name), f.dataType).alias(f.name) for f in rows.schema.fields])
    pairs = list(itertools.combinations(range(len(texts)), 2))
    alike = [F.col(f"c{a}").eqNullSafe(F.col(f"c{b}")) for a, b in pairs]
    values = tuple(forms.select(*alike, *[F.col(name).isNull() for name in forms.columns]).first() or ())
    assert len(values) == len(pairs) + len(texts)
    assert [(texts[a], texts[b]) for (a, b), same in zip(pairs, values, strict=False) if same] == []
    assert sum(values[len(pairs) :]) <= 1


def test_equal_values_are_one_group(lake: Lake) -> None:
    for pair in SAME:
        rows = lake.sql(" UNION ALL ".join(f"SELECT {text} AS v" for text in pair))
        assert rows.groupBy(exact_value(F.col("v"), rows.schema["v"].dataType)).count().count() == 1, pair
