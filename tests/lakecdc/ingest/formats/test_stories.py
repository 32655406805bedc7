"""The same history in every format ends in the same table, in any order and with repetitions."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from lakecdc.ingest.engine.decoded import Decoded
from tests.lakecdc.ingest.formats.decoding import decode_lines, rejections, state
from tests.lakecdc.ingest.formats.stories import COLUMNS, ENCODINGS, final
from tests.on_demand import on_demand

# CI reads each format with one of the engines
SHUFFLED = ("debezium-postgres", "canal", "maxwell")


def rounded(decoded: Decoded) -> list[tuple[object, ...]]:
    """Round as float columns do."""
    return [(*r[:3], round(r[3], 4)) for r in state(decoded, COLUMNS)]


@pytest.mark.parametrize("name", on_demand(ENCODINGS, in_ci=[name for name in ENCODINGS if name not in SHUFFLED]))
def test_every_format_ends_in_the_same_state(spark: SparkSession, name: str) -> None:
    fmt, encode, story = ENCODINGS[name]
    decoded = decode_lines(spark, fmt, encode(story))
    assert rounded(decoded) == final(story)
    assert rejections(decoded) == []
    assert decoded.events == sum(len(images) for _, images in story)


@pytest.mark.parametrize("name", on_demand(ENCODINGS, in_ci=SHUFFLED))
def test_shuffled_and_repeated_events_end_in_the_same_state(spark: SparkSession, name: str) -> None:
    fmt, encode, story = ENCODINGS[name]
    lines = encode(story)
    mixed = ["{not json", *lines, '"text"', *lines[3:9], "[1]"]
    random.Random(name).shuffle(mixed)
    decoded = decode_lines(spark, fmt, mixed)
    assert rounded(decoded) == final(story)
    assert sorted(rule for rule, _ in rejections(decoded)) == ["not-json", "unknown-message", "unknown-message"]
    assert decoded.rejections == 3
