"""How rows that differ are handed to ingestion."""

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
    """What ingestion is told, each time until it has loaded the rows, and what it says at last.

    :param reports: of each time.
    """
    told: list[JobSpec] = []

    def feed_tables(_opened: Any, _spark: Any, spec: JobSpec, _refused: Any) -> list[TableReport]:
        told.append(spec)
        return [reports[len(told) - 1]]

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
    return told, repair._loaded(spec, comparison, (), spec.options)


def test_ingestion_knows_the_quarantine_of_its_own_task(monkeypatch: pytest.MonkeyPatch) -> None:
    (told,), _report = loaded(monkeypatch, [TableReport("shop.orders", "done")])
    assert isinstance(told.options, IngestOptions) and told.options.quarantine_table == "odd.{table}"
    assert [target.table for target in told.targets] == ["shop.orders"]


def test_rows_are_read_once_more_where_another_run_came_first(monkeypatch: pytest.MonkeyPatch) -> None:
    conflict = TableReport("shop.orders", "conflict", "another run", "conflict")
    told, report = loaded(monkeypatch, [conflict, conflict, TableReport("shop.orders", "done")])
    assert (len(told), report.outcome) == (3, "done")
    told, report = loaded(monkeypatch, [conflict] * 9)
    assert (len(told), report.outcome) == (5, "conflict")
    told, _report = loaded(monkeypatch, [TableReport("shop.orders", "failed", "bad", "bad input")] * 9)
    assert len(told) == 1
