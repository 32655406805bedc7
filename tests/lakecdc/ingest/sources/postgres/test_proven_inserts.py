"""Rows that the log inserts get no equality delete where the table cannot have them, and every other key gets one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.iceberg.table import Snapshot
from lakecdc.metadata import names
from lakecdc.runtime import failpoints
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.sources.model import differs, run

from .conftest import Shop

COLUMNS = "id, v"


def made(shop: Shop, rows: int = 100, **target: Any) -> str:
    """A table with the ids from 1 on, loaded in full; its name."""
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v text)")
    shop.sql(f"INSERT INTO s.t SELECT i, 'loaded' FROM generate_series(1, {rows}) i")
    name = shop.target("t", **target)
    assert run(shop)[name].outcome == "done"
    return name


def fed(shop: Shop, name: str, **source: Any) -> TableReport:
    """One run, after which the table equals its source."""
    report = run(shop, **source)[name]
    assert report.outcome == "done", report.reason
    assert not differs(shop, name, COLUMNS)
    return report


def snapshot(shop: Shop, name: str) -> Snapshot:
    """The head."""
    head = shop.lake.table(name).head()
    assert head is not None
    return head


def deleted(shop: Shop, name: str) -> int:
    """Keys in the equality deletes of the head."""
    summary = snapshot(shop, name).summary
    return int(summary.get("added-equality-deletes") or 0)


def test_insert_only_batches_leave_no_debt(shop: Shop) -> None:
    name = made(shop, partition_by=["bucket(2, id)"])
    for start in (1000, 2000):
        shop.sql(f"INSERT INTO s.t SELECT i, 'new' FROM generate_series({start}, {start + 9}) i")
        report = fed(shop, name)
        assert report.metrics["deletes_left_out"] == 10 and "deletes_kept_because" not in report.metrics
        assert report.metrics["delete_files"] == 0 == deleted(shop, name)
    assert snapshot(shop, name).summary["total-equality-deletes"] == "0"
