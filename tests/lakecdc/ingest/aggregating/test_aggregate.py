"""Aggregated tables against the rows of their source."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.conftest import Lake
from tests.lakecdc.ingest.aggregating.support import ALL, SUMS, AggregateFeed, Grouped, again, cut, expected


@pytest.mark.parametrize("columns", [SUMS, ALL], ids=["sums", "all"])
def test_a_history_cut_anywhere(lake: Lake, tmp_path: Path, columns: dict[str, str]) -> None:
    feed, history, rng = AggregateFeed(lake, tmp_path, columns=columns), Grouped(random.Random(7)), random.Random(8)
    for _ in range(60):
        history.statement(12)
    seen = []
    for part in cut(rng, history.events, 4):
        repeated = again(rng.sample(seen, len(seen) // 4), 10_000 + len(seen))
        rng.shuffle(repeated)
        feed.take([*repeated, *part])
        seen += part
    assert feed.groups() == expected(history, columns)
