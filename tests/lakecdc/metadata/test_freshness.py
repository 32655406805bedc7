"""Promised freshness: when it is met, by how much it is missed, and for which tables it is promised."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lakecdc.metadata.freshness import format_seconds, judge_freshness, judge_table

NOW = datetime(2026, 1, 1, 6, 0, tzinfo=UTC)
REMEDY = "Check the last runs of its ingestion, and run it more often if they succeed."


@pytest.mark.parametrize(
    ("promised", "source_time", "lag", "late"),
    [
        ("30m", "2026-01-01T05:30:00+00:00", 1800.0, 0.0),
        ("30m", "2026-01-01T05:29:59+00:00", 1801.0, 1.0),
        ("1d", "2025-12-31T00:00:00+00:00", 108000.0, 21600.0),
        # the clocks of source and worker differ
        ("1s", "2026-01-01T06:00:05+00:00", 0.0, 0.0),
    ],
)
def test_a_promise_is_met_up_to_its_age(promised: str, source_time: str, lag: float, late: float) -> None:
    freshness = judge_freshness(promised, source_time, NOW)
    assert (freshness.lag_seconds, freshness.late_seconds, freshness.is_kept) == (lag, late, late == 0)
    assert freshness.facts()["freshness_late_seconds"] == late
    assert (freshness.problem is None) is freshness.is_kept


def test_missed_freshness_reports_lateness_and_remedy() -> None:
    assert judge_freshness("30m", "2026-01-01T04:45:00+00:00", NOW).problem == (
        "readers see its source as of 2026-01-01 04:45:00 UTC, 1 h 15 min ago; a freshness of 30 min is promised and "
        f"missed by 45 min. {REMEDY}"
    )


def test_an_unknown_age_misses_the_promise() -> None:
    unknown = judge_freshness("30m", None, NOW)
    assert not unknown.is_kept
    assert unknown.facts() == {"freshness_promised_seconds": 1800.0, "freshness_late_seconds": None}
    assert unknown.problem == (
        f"no source moment of its rows is known, and a freshness of 30 min is promised. {REMEDY}"
    )


@pytest.mark.parametrize(
    ("table", "source_time", "promised"),
    [
        ("shop.orders", "2026-01-01T05:00:00+00:00", 60.0),
        ("shop.items", "2026-01-01T05:00:00+00:00", 3600.0),
        # a table named in the configuration should have been fed
        ("shop.orders", None, 60.0),
        # unfed tables may match the pattern as well
        ("shop.items", None, None),
        ("shop.items_lakecdc_deletes", "2026-01-01T05:00:00+00:00", None),
        ("crm.people", "2026-01-01T05:00:00+00:00", None),
        # its own name takes precedence over patterns, even for no promise
        ("shop.archive", "2026-01-01T05:00:00+00:00", None),
        ("shop.a_", "2026-01-01T05:00:00+00:00", 10800.0),
    ],
)
def test_the_name_or_the_longest_pattern_promises(table: str, source_time: str | None, promised: float | None) -> None:
    promises = {
        "s*": "9h",
        "shop.*": "1h",
        "shop.orders": "60s",
        "shop.archive": None,
        "shop.*_*": "2h",
        "shop.a_": "3h",
    }
    freshness = judge_table(promises, table, source_time, NOW, is_fed=True)
    assert (freshness and freshness.promised_seconds) == promised


def test_unfed_tables_have_a_promise_only_by_name() -> None:
    promises = {"shop.*": "1h", "shop.orders": "60s"}
    copied, named = (
        judge_table(promises, table, "2026-01-01T05:00:00+00:00", NOW, is_fed=False)
        for table in ("shop.copy", "shop.orders")
    )
    assert copied is None and named is not None and named.promised_seconds == 60.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (61, "1 min 1 s"), (3660, "1 h 1 min"), (90000, "1 d 1 h")],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
