"""When alerts begin and end, and what they contain."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import parse
from lakecdc.metadata.alert_state import Alerts, News, low_scores, missed_promises, unpaid_debts
from lakecdc.metadata.freshness import Freshness

OWNERS = {"shop.a": "shop-team"}


def health(**scores: float) -> dict[str, dict[str, Any]]:
    lost = {"small_files": 2.5, "deletes": 40.0, "overlap": 0.0}
    return {f"shop.{name}": {"score": score, "lost": lost} for name, score in scores.items()}


def test_a_low_score_alerts_once_and_once_more_on_recovery() -> None:
    news, sent = low_scores(health(a=59.5, b=60, c=61), [], 60, OWNERS)
    lacks = "it lacks 40 for deletes, 2.5 for small_files"
    assert news == News((f"shop.a (shop-team): its score is 59.5, below 60; {lacks}",))
    assert sent == ["shop.a"]
    # an unmeasured table keeps its alert
    assert low_scores(health(b=70), sent, 60, OWNERS) == (News(), sent)
    # a score that oscillates around the limit sends no further alert
    for score in (10, 64.9, 59):
        assert low_scores(health(a=score), sent, 60, OWNERS) == (News(), sent)
    assert low_scores(health(a=65), sent, 60, OWNERS) == (
        News((), ("shop.a (shop-team): its score is 65 again",)),
        [],
    )
    assert low_scores(health(a=100), sent, 99, OWNERS)[1] == []


def test_missed_freshness_alerts_once_and_once_more_on_recovery() -> None:
    late, fresh = Freshness(60.0, "2026-01-01T05:00:00+00:00", 90.0), Freshness(60.0, "2026-01-01T05:00:00+00:00", 60.0)
    news, sent = missed_promises({"shop.a": late, "shop.b": fresh}, [], OWNERS)
    (line,) = news.began
    assert line.startswith("shop.a (shop-team): readers see its source as of 2026-01-01 05:00:00 UTC, 1 min 30 s ago")
    assert (news.over, sent) == ((), ["shop.a"])
    assert missed_promises({"shop.a": late}, sent, OWNERS) == (News(), sent)
    # a table that could not be read is still late
    assert missed_promises({"shop.b": fresh}, sent, OWNERS) == (News(), sent)
    again = News((), ("shop.a (shop-team): its promised freshness is kept again",))
    assert missed_promises({"shop.a": fresh}, sent, OWNERS) == (again, [])
    # the promise was withdrawn
    assert missed_promises({"shop.a": None}, sent, OWNERS) == (News(), [])


def test_work_left_undone_run_after_run_alerts_once() -> None:
    undone, runs = {"sort": {"shop.a": "no budget", "shop.b": "failed"}}, dict[str, dict[str, int]]()
    alerts: list[News] = []
    for _ in range(4):
        news, runs = unpaid_debts(undone, {("sort", "shop.c"), ("other", "shop.a")}, runs, 3, OWNERS)
        alerts.append(news)
    assert alerts[0] == alerts[1] == alerts[3] == News()
    assert alerts[2].began == (
        "shop.a (shop-team): sort has left its work undone for 3 runs; no budget",
        "shop.b: sort has left its work undone for 3 runs; failed",
    )
    # a run without these tables changes nothing
    assert unpaid_debts({}, set(), runs, 3, OWNERS) == (News(), runs)
    news, left = unpaid_debts({}, {("sort", "shop.a")}, runs, 3, OWNERS)
    assert (news.began, news.over) == ((), ("shop.a (shop-team): sort has done its work again",))
    assert left == {"sort": {"shop.b": 4}}
    # without an alert there is no recovery
    assert unpaid_debts({}, {("sort", "shop.b")}, {"sort": {"shop.b": 2}}, 3, OWNERS) == (News(), {})


def test_both_kinds_are_reported_together() -> None:
    news = News(("a",)) + News(("b",), ("c",))
    assert (str(news), bool(news), bool(News())) == ("a\nb\nc", True, False)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"score_below": 0}, "score_below above 0 .* got 0"),
        ({"score_below": 101}, "score_below above 0 .* got 101"),
        ({"unpaid_runs": 0}, "unpaid_runs of 1 or more, got 0"),
        ({"score_below": 60, "notifier": "not a path"}, "not the import path"),
        ({"score_below": 60, "notifier": "a..b"}, "not the import path"),
        ({"notifier": "a.b"}, "notifier but no limit"),
        ({"score_below": 60, "arguments": {"to": "x"}}, "but no notifier"),
        ({"score_below": 60, "notifier": "a.b", "arguments": {"token": "x"}}, "secret as a literal"),
        ({"score": 60}, "score"),
    ],
)
def test_invalid_alerts_are_refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse(Alerts, document, "alerts")
