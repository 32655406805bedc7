"""Reloading of different rows by ingestion."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from lakecdc.contract.feeding import IngestOptions, ReconcileOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec, parse_spec
from lakecdc.reconcile import repair

_SOURCE = dict.fromkeys(("key", "columns", "ordered", "rows", "now", "load"), len)


def loaded(monkeypatch: pytest.MonkeyPatch, reports: Sequence[TableReport]) -> tuple[list[JobSpec], TableReport]:
    """Return the specs of each run of ingestion until the rows are loaded, and its last report.

    :param reports: report of each run.
    """
    specs: list[JobSpec] = []

    def feed_tables(_opened: Any, _spark: Any, spec: JobSpec, _refused: Any) -> list[TableReport]:
        specs.append(spec)
        return [reports[len(specs) - 1]]

    monkeypatch.setattr(repair, "feed_tables", feed_tables)
    spec = parse_spec(
        {
            "version": 1,
            "job": "reconcile",
            "catalog": {"name": "lake", "properties": {"type": "rest", "uri": "https://catalog.example.com"}},
            "source": {"type": "mysql", "host": "db.example.com", "user": "lakecdc"},
            "target": [{"table": "shop.orders"}, {"table": "shop.customers"}],
            "options": {"repair": True, "quarantine_table": "odd.{table}"},
        }
    )
    assert isinstance(spec.options, ReconcileOptions)
    source = SimpleNamespace(**_SOURCE, alone=lambda _seconds: nullcontext())
    table = SimpleNamespace(name="shop.orders", spark=None)
    comparison: Any = SimpleNamespace(pair=SimpleNamespace(source=source, table=table, target=spec.targets[0]))
    return specs, repair._loaded(spec, comparison, (), spec.options)


def test_ingestion_uses_the_tasks_quarantine(monkeypatch: pytest.MonkeyPatch) -> None:
    (spec,), _report = loaded(monkeypatch, [TableReport("shop.orders", "done")])
    assert isinstance(spec.options, IngestOptions) and spec.options.quarantine_table == "odd.{table}"
    assert [target.table for target in spec.targets] == ["shop.orders"]


def test_rows_are_read_again_after_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    conflict = TableReport("shop.orders", "conflict", "another run", "conflict")
    specs, report = loaded(monkeypatch, [conflict, conflict, TableReport("shop.orders", "done")])
    assert (len(specs), report.outcome) == (3, "done")
    specs, report = loaded(monkeypatch, [conflict] * 9)
    assert (len(specs), report.outcome) == (5, "conflict")
    specs, _report = loaded(monkeypatch, [TableReport("shop.orders", "failed", "bad", "bad input")] * 9)
    assert len(specs) == 1
