"""Which tables hurt, and of which of them somebody has yet to be told: once when it begins and once when it is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakecdc.contract.errors import SpecError
from lakecdc.contract.secrets import refuse_literals

#: a score that goes up and down around its limit is told of once: it is over this many points above
_ABOVE = 5.0


@dataclass(frozen=True)
class Alerts:
    """When somebody is told of a table that hurts, and how. Whoever stands as its owner is named.

    :param score_below: tell of a table whose score is below this.
    :param unpaid_runs: tell of a table whose work a job has left undone for so many runs of a DAG, one after another.
    :param notifier: import path of an Airflow notifier, such as
        ``airflow.providers.smtp.notifications.smtp.SmtpNotifier``; default: the log and an XCom alone.
    :param arguments: of the notifier; Airflow fills in its templated ones, in which ``{{ hurts }}`` is what there is to
        tell.
    """

    score_below: float | None = None
    unpaid_runs: int | None = None
    notifier: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.score_below is not None and not 0 < self.score_below <= 100:
            raise SpecError(f"alerts.score_below is {self.score_below}, not above 0 and at most 100.")
        if self.unpaid_runs is not None and self.unpaid_runs < 1:
            raise SpecError(f"alerts.unpaid_runs is {self.unpaid_runs}, not 1 or more.")
        if self.notifier is not None and not all(part.isidentifier() for part in f".{self.notifier}".split(".")[1:]):
            raise SpecError(f"alerts.notifier is {self.notifier!r}, which is no import path of a class.")
        if self.notifier is not None and not self.any_limit:
            raise SpecError(
                "alerts has a notifier, and nothing to tell.", hint="Give score_below, unpaid_runs, or both."
            )
        if self.arguments and self.notifier is None:
            raise SpecError("alerts has arguments, and no notifier that takes them.")
        refuse_literals(self.arguments, "alerts.arguments")

    @property
    def any_limit(self) -> bool:
        """Whether anything is told."""
        return self.score_below is not None or self.unpaid_runs is not None


@dataclass(frozen=True)
class News:
    """What somebody is told.

    :param began: a line for each table and reason that hurts since this run.
    :param over: a line for each that does no more.
    """

    began: tuple[str, ...] = ()
    over: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.began or self.over)

    def __add__(self, other: News) -> News:
        return News(self.began + other.began, self.over + other.over)

    def __str__(self) -> str:
        return "\n".join((*self.began, *self.over))


def low_scores(
    health: Mapping[str, Mapping[str, Any]], told: Collection[str], below: float, owners: Mapping[str, str | None]
) -> tuple[News, list[str]]:
    """Tables whose score has fallen below a limit, and those that have risen again.

    :param health: facts of each table that was measured.
    :param told: tables of which was told before; one that was not measured stays among them.
    :param owners: whom to ask, by table.
    :return: the news, and the tables of which has been told by now.
    """
    began, over, low = [], [], [table for table in told if table not in health]
    for table, facts in health.items():
        score, known = facts["score"], table in told
        if score < below or (known and score < min(below + _ABOVE, 100.0)):
            low.append(table)
        if score < below and not known:
            lost = sorted(((points, name) for name, points in facts["lost"].items() if points), reverse=True)
            why = ", ".join(f"{points:g} for {name}" for points, name in lost)
            began.append(f"{_named(table, owners)}: its score is {score:g}, below {below:g}; it lacks {why}")
        elif known and table not in low:
            over.append(f"{_named(table, owners)}: its score is {score:g} again")
    return News(tuple(began), tuple(over)), sorted(low)


def unpaid_debts(
    undone: Mapping[str, Mapping[str, str]],
    paid: Collection[tuple[str, str]],
    runs: Mapping[str, Mapping[str, int]],
    limit: int,
    owners: Mapping[str, str | None],
) -> tuple[News, dict[str, dict[str, int]]]:
    """Tables whose work jobs have left undone for a number of runs, and those where it has been done since.

    :param undone: reasons by job and table.
    :param paid: jobs and tables where the work is done, or where there is none.
    :param runs: by job and table, for how many runs one after another it was left undone before this one.
    :param limit: number of runs.
    :param owners: whom to ask, by table.
    :return: the news, and the number of runs by now; what is neither undone nor paid stays as it was.
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
