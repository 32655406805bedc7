"""Numbers in the report of a run, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakecdc.contract.rewriting import RewriteDeleteFilesOptions
from lakecdc.iceberg.lease import LeaseHeldError
from lakecdc.maintain.delete_files import job
from lakecdc.maintain.delete_files.job import Rewrite


def snapshot(number: int) -> Any:
    return SimpleNamespace(id=number, summary={"total-equality-deletes": "3", "total-position-deletes": "0"})


@pytest.mark.parametrize(("head", "before", "after"), [(7, 2, 2), (8, 2, 1)])
def test_a_run_without_a_plan_counts_the_delete_files_of_both_heads(
    monkeypatch: pytest.MonkeyPatch, head: int, before: int, after: int
) -> None:
    files = {7: ["a", "b"], 8: ["b"]}
    monkeypatch.setattr(job, "equality_deletes", lambda _, number: files[number])
    table: Any = SimpleNamespace(name="shop.orders", format_version=2, head=lambda _: snapshot(head))
    table.refresh = lambda: table
    rewrite = Rewrite(table, RewriteDeleteFilesOptions(), snapshot(7))

    def leased() -> None:
        raise LeaseHeldError("It is leased.", table="shop.orders")

    monkeypatch.setattr(rewrite, "_attempt", leased)
    report = rewrite.run()
    assert report.outcome == "conflict"
    metrics = report.metrics
    assert (metrics["equality_delete_files_before"], metrics["equality_delete_files_after"]) == (before, after)
