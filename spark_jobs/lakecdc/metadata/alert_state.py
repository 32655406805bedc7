"""Alerts on unhealthy tables: once when they degrade, and once when they recover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakecdc.contract.errors import SpecError
from lakecdc.contract.secrets import refuse_literals
from lakecdc.metadata.freshness import Freshness

#: points above the limit at which a table counts as recovered, so that a score around the limit alerts once
_ABOVE = 5.0


@dataclass(frozen=True)
class Alerts:
    """When and how to send alerts about unhealthy tables; the owner of a table is named.

    :param score_below: alert about a table whose score is below this.
    :param unpaid_runs: alert about a table whose work a job left undone in this many consecutive runs of a DAG.
    :param missed_freshness: alert about a table whose promised freshness is missed.
    :param notifier: import path of an Airflow notifier, such as
        ``airflow.providers.smtp.notifications.smtp.SmtpNotifier``; default: only the log and an XCom.
    :param arguments: of the notifier; Airflow renders its templated ones, where ``{{ hurts }}`` is the text of the
        alerts.
    """

    score_below: float | None = None
    unpaid_runs: int | None = None
    missed_freshness: bool = False
    notifier: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.score_below is not None and not 0 < self.score_below <= 100:
            raise SpecError(f"Expected alerts.score_below above 0 and at most 100, got {self.score_below}.")
        if self.unpaid_runs is not None and self.unpaid_runs < 1:
            raise SpecError(f"Expected alerts.unpaid_runs of 1 or more, got {self.unpaid_runs}.")
        if self.notifier is not None and not all(part.isidentifier() for part in f".{self.notifier}".split(".")[1:]):
            raise SpecError(f"alerts.notifier {self.notifier!r} is not the import path of a class.")
        if self.notifier is not None and not self.any_limit:
            raise SpecError(
                "alerts has a notifier but no limit.", hint="Set score_below, unpaid_runs or missed_freshness."
            )
        if self.arguments and self.notifier is None:
            raise SpecError("alerts has arguments but no notifier.")
        refuse_literals(self.arguments, "alerts.arguments")

    @property
    def any_limit(self) -> bool:
        """Check whether any alert is configured."""
        return self.score_below is not None or self.unpaid_runs is not None or self.missed_freshness


@dataclass(frozen=True)
class News:
    """Messages of an alert: a line for each table and reason that started with this run, and for each that ended."""

    began: tuple[str, ...] = ()
    over: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.began or self.over)

    def __add__(self, other: News) -> News:
        return News(self.began + other.began, self.over + other.over)

    def __str__(self) -> str:
        return "\n".join((*self.began, *self.over))


def low_scores(
    health: Mapping[str, Mapping[str, Any]], alerted: Collection[str], below: float, owners: Mapping[str, str | None]
) -> tuple[News, list[str]]:
    """Find tables whose score fell below a limit, and those that recovered.

    :param alerted: tables that were alerted before; one that was not measured stays alerted.
    :param owners: contact by table.
    :return: the news, and the tables alerted by now.
    """
    began, over, low = [], [], [table for table in alerted if table not in health]
    for table, facts in health.items():
        score, known = facts["score"], table in alerted
        if score < below or (known and score < min(below + _ABOVE, 100.0)):
            low.append(table)
        if score < below and not known:
            lost = sorted(((points, name) for name, points in facts["lost"].items() if points), reverse=True)
            why = ", ".join(f"{points:g} for {name}" for points, name in lost)
            began.append(f"{_named(table, owners)}: its score is {score:g}, below {below:g}; it lacks {why}")
        elif known and table not in low:
            over.append(f"{_named(table, owners)}: its score is {score:g} again")
    return News(tuple(began), tuple(over)), sorted(low)


def missed_promises(
    freshness: Mapping[str, Freshness | None], alerted: Collection[str], owners: Mapping[str, str | None]
) -> tuple[News, list[str]]:
    """Find tables that no longer keep their promised freshness, and those that keep it again.

    :param freshness: of each table that was read, None without a promise; one that was not read stays alerted.
    :param owners: contact by table.
    :return: the news, and the tables alerted by now.
    """
    late = {table: each.problem for table, each in freshness.items() if each and each.problem}
    began = [f"{_named(table, owners)}: {problem}" for table, problem in late.items() if table not in alerted]
    over = [
        f"{_named(table, owners)}: its promised freshness is kept again"
        for table, each in freshness.items()
        if each and table in alerted and table not in late
    ]
    waiting = [table for table in alerted if table not in freshness]
    return News(tuple(began), tuple(over)), sorted({*late, *waiting})


def unpaid_debts(
    undone: Mapping[str, Mapping[str, str]],
    paid: Collection[tuple[str, str]],
    runs: Mapping[str, Mapping[str, int]],
    limit: int,
    owners: Mapping[str, str | None],
) -> tuple[News, dict[str, dict[str, int]]]:
    """Find tables whose work jobs left undone for a number of runs, and those where it was done since.

    :param undone: reasons by job and table.
    :param paid: jobs and tables whose work is done, or where there is none.
    :param runs: number of consecutive earlier runs that left the work undone, by job and table.
    :param owners: contact by table.
    :return: the news, and the updated numbers of runs; pairs that are neither undone nor paid do not change.
    """
    counts = Counter({(job, table): count for job, of_job in runs.items() for table, count in of_job.items()})
    began, over = [], []
    for job, table in sorted(paid):
        if counts.pop((job, table), 0) >= limit:
            over.append(f"{_named(table, owners)}: {job} has done its work again")
    for job, of_job in undone.items():
        for table, reason in of_job.items():
            counts[job, table] += 1
            if counts[job, table] == limit:
                began.append(f"{_named(table, owners)}: {job} has left its work undone for {limit} runs; {reason}")
    left: dict[str, dict[str, int]] = {}
    for (job, table), count in counts.items():
        left.setdefault(job, {})[table] = count
    return News(tuple(began), tuple(over)), left


def _named(table: str, owners: Mapping[str, str | None]) -> str:
    owner = owners.get(table)
    return f"{table} ({owner})" if owner else table
