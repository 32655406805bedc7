"""After every job, in every form of deletes, each reader returns the same rows or refuses the table as documented."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.metadata.readers import READERS, Reader, can_read
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed, PlainHistory
from tests.lakecdc.maintain.stages import GROUNDS
from tests.lakecdc.maintain.support import manifests, run
from tests.on_demand import on_demand
from tests.readers import Read, all_readers, plain_rows, readers_at_hand

pytestmark = pytest.mark.services

#: documented reasons of readers for refusing tables
REFUSALS = {"pyiceberg": "equality delete", "clickhouse": "only for parquet", "duckdb": "INTERNAL Error"}
BY_NAME: dict[str, Reader] = {reader.short: reader for reader in READERS}


def check(lake: Lake, name: str, readers: Mapping[str, Read]) -> dict[str, str]:
    """Return differences from our claims by reader; Spark's rows are the reference."""
    table, differences = lake.table(name), {}
    head = table.head()
    assert head is not None
    equality, position = (int(head.summary[f"total-{kind}-deletes"]) for kind in ("equality", "position"))
    expected = plain_rows(lake, name, readers["spark"](name))
    for short, read in readers.items():
        reads = can_read(BY_NAME[short], table.format_version, equality, position)
        try:
            rows = plain_rows(lake, name, read(name))
        except Exception as error:
            # DuckDB's (duckdb-iceberg#1276)
            known = short == "duckdb" and equality and len({one.partition_spec_id for one in manifests(lake, name)}) > 1
            if (reads and not known) or REFUSALS[short] not in str(error):
                differences[short] = f"refuses: {str(error)[:300]}"
            continue
        if reads is False:
            differences[short] = "reads it" + (" rightly" if rows == expected else " wrongly")
        elif rows != expected:
            more, less = ([r for r in one if r not in other] for one, other in ((rows, expected), (expected, rows)))
            differences[short] = f"{len(rows)} rows of {len(expected)}, {more[:2]} instead of {less[:2]}"
    return differences


@pytest.fixture(scope="module")
def outside(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Read]]:
    with all_readers(lake, tmp_path_factory.mktemp("outside")) as readers:
        yield readers


def run_stages(lake: Lake, folder: Path, ground: str, version: int, readers: Mapping[str, Read]) -> None:
    """Take a table through all its stages."""
    differences_by_stage: dict[str, Any] = {}
    for number, (stage, name) in enumerate(GROUNDS[ground](lake, folder, version)):
        differences = check(lake, name, readers)
        if differences:
            differences_by_stage[f"{number} {stage}"] = differences
    assert not differences_by_stage, json.dumps(differences_by_stage, indent=1, default=str)


@pytest.mark.soak
@pytest.mark.parametrize(("ground", "version"), [*product(GROUNDS, (2, 3))])
def test_every_reader_returns_the_rows_after_every_job(
    lake: Lake, tmp_path: Path, outside: Mapping[str, Read], ground: str, version: int
) -> None:
    run_stages(lake, tmp_path, ground, version, outside)


@pytest.mark.parametrize(
    ("ground", "version"), on_demand(product(GROUNDS, (2, 3)), in_ci=[("typed", 2), ("resolved", 3)])
)
def test_readers_without_a_server_return_the_rows_after_every_job(
    lake: Lake, tmp_path: Path, ground: str, version: int
) -> None:
    run_stages(lake, tmp_path, ground, version, readers_at_hand(lake))


@pytest.mark.soak
def test_every_reader_scans_right_after_a_batch(lake: Lake, tmp_path: Path, outside: Mapping[str, Read]) -> None:
    """Print the seconds of each reader; the rows are the same."""
    history, feeds = PlainHistory(random.Random(1)), {}
    for kind in ("equality", "resolved"):
        (tmp_path / kind).mkdir()
        feeds[kind] = Feed(lake, tmp_path / kind, {"deletes": kind, "partition_by": ["bucket(4, id)"]})
    for key in range(50_000):
        history.insert(key)
    loaded = len(history.events)
    for key in range(0, 50_000, 10):
        history.update(key, touch_doc=True)
    for feed in feeds.values():
        feed.take(history.events[:loaded])
        feed.take(history.events[loaded:])
    seconds = {kind: scans(feed, outside) for kind, feed in feeds.items()}
    run(lake, rewrite_delete_files, feeds["equality"].table)
    seconds["converted"] = scans(feeds["equality"], outside)
    print(json.dumps({"name": "scan-after-batch", "rows": len(history.rows), "seconds": seconds}))
    assert "pyiceberg" not in seconds["equality"] and "pyiceberg" in seconds["resolved"]


def scans(feed: Feed, readers: Mapping[str, Read]) -> dict[str, float]:
    """Return the seconds of a scan by each reader of the table, without the first scan."""
    assert not check(feed.lake, feed.table, readers)
    seconds_by_reader = {}
    for short, read in readers.items():
        started = time.monotonic()
        with suppress(ValueError):
            read(feed.table)
            seconds_by_reader[short] = round(time.monotonic() - started, 2)
    return seconds_by_reader
