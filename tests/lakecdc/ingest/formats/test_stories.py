"""The same history in every format ends in the same table, in whatever order and how often its messages come."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from lakecdc.ingest.engine.decoded import Decoded
from tests.lakecdc.ingest.formats.decoding import decode_lines, rejections, state
from tests.lakecdc.ingest.formats.stories import COLUMNS, ENCODINGS, final
from tests.on_demand import on_demand

# CI reads each format in one of the ways
SHUFFLED = ("debezium-postgres", "canal", "maxwell")


def rounded(found: Decoded) -> list[tuple[object, ...]]:
    """Float columns hold what a float can."""
    return [(*r[:3], round(r[3], 4)) for r in state(found, COLUMNS)]


@pytest.mark.parametrize("name", on_demand(ENCODINGS, in_ci=[name for name in ENCODINGS if name not in SHUFFLED]))
def test_final_state(spark: SparkSession, name: str) -> None:
    fmt, encode, story = ENCODINGS[name]
    found = decode_lines(spark, fmt, encode(story))
    assert rounded(found) == final(story)
    assert rejections(found) == []
    assert found.events == sum(len(images) for _, images in story)


@pytest.mark.parametrize("name", on_demand(ENCODINGS, in_ci=SHUFFLED))
def test_shuffled_repeated_and_among_garbage(spark: SparkSession, name: str) -> None:
    fmt, encode, story = ENCODINGS[name]
    lines = encode(story)
    mixed = ["{not json", *lines, '"text"', *lines[3:9], "[1]"]
    random.Random(name).shuffle(mixed)
    found = decode_lines(spark, fmt, mixed)
    assert rounded(found) == final(story)
    assert sorted(rule for rule, _ in rejections(found)) == ["not-json", "unknown-message", "unknown-message"]
    assert found.rejections == 3
