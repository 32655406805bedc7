"""Choice of jobs and tables within a budget: the most benefit for readers per cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lakecdc.contract import fields
from lakecdc.contract.protection import Protection

# maximum number of skipped actions to try in place of others
_TRIED = 50
_NO_APPROVAL_STEP = "it needs approval, which only DAGs with approve in a policy of their configuration request"


@dataclass(frozen=True)
class Action:
    """One job that one table may need.

    :param benefit: opened files saved for readers (:class:`lakecdc.metadata.work.Work`), weighted by how much the table
        is read.
    :param core_seconds: predicted cost; None if only the job can determine it.
    :param guessed_core_seconds: the prediction before the correction by measured runs.
    :param due: why it cannot wait, if it cannot.
    :param options: options of the job that the table's policy prefers.
    :param approve: approval is required before anything is removed.
    :param protection: the table's policy for a job that removes something.
    """

    table: str
    job: str
    reason: str
    benefit: float = 0.0
    core_seconds: float | None = None
    guessed_core_seconds: float | None = None
    bytes: int = 0
    due: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    approve: bool = False
    protection: Protection | None = None

    @property
    def worth(self) -> float:
        """Return the opened files saved per core-second."""
        return self.benefit / max(self.core_seconds or 0.0, 0.001)


@dataclass(frozen=True)
class Skipped:
    """One job that is skipped on one table, and why."""

    table: str
    job: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """Chosen actions, in the order of choice, and skipped ones; no budget means no limit."""

    chosen: tuple[Action, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    budget_core_seconds: float | None = None

    @property
    def core_seconds(self) -> float:
        """Return the predicted total cost, as far as known."""
        return round(_cost(self.chosen), 3)

    @property
    def benefit(self) -> float:
        """Return the total of opened files saved."""
        return _gain(self.chosen)

    def of_job(self, job: str) -> list[Action]:
        """Return the actions of one job, in the order of choice, including those that need approval."""
        return [action for action in self.chosen if action.job == job]

    def facts(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        return asdict(self)


def parse_plan(document: Mapping[str, Any]) -> Plan:
    """Parse a plan.

    :raises SpecError: it is not a valid plan.
    """
    return fields.parse(Plan, document, "plan")


def choose(
    actions: Iterable[Action],
    skipped: Sequence[Skipped] = (),
    budget: float | None = None,
    asks: Collection[str] = (),
) -> Plan:
    """Choose due actions and those of unknown cost, then the most worthwhile ones within the budget.

    Actions that do not fit are skipped in favour of others that do, unless leaving out others gains more. They are
    chosen once they are due.

    :param budget: core-seconds; None is no limit.
    :param asks: jobs whose findings can be approved; actions of others that need approval are skipped.
    """
    candidates = list(actions)
    unasked = [action for action in candidates if action.approve and action.job not in asks]
    waiting = [action for action in candidates if not action.approve or action.job in asks]
    must = [action for action in waiting if action.due or action.core_seconds is None]
    may = [action for action in waiting if not (action.due or action.core_seconds is None)]
    chosen, left_out = list(must), [*skipped, *(Skipped(a.table, a.job, _NO_APPROVAL_STEP) for a in unasked)]
    left = None if budget is None else budget - _cost(must)
    may.sort(key=lambda a: (-a.worth, a.core_seconds or 0.0, a.table))
    fitting = may if left is None else _most_gained(may, left)
    chosen += fitting
    if budget is not None and left is not None:
        left_out += _passed_over(may, fitting, budget, max(left - _cost(fitting), 0.0))
    return Plan(tuple(chosen), tuple(left_out), budget)


def _most_gained(ranked: Sequence[Action], budget: float) -> list[Action]:
    """Choose what fits in turn, or the same with one of the skipped actions first if that gains more."""
    best = first = _in_turn(ranked, budget)
    others = [each for each in _without(ranked, first) if (each.core_seconds or 0.0) <= budget]
    for ahead in others[:_TRIED]:
        with_it = _in_turn([ahead, *_without(ranked, [ahead])], budget)
        best = max(best, with_it, key=_gain)
    return _without(ranked, _without(ranked, best))


def _passed_over(ranked: Sequence[Action], chosen: Sequence[Action], budget: float, left: float) -> list[Skipped]:
    skipped = []
    for action in _without(ranked, chosen):
        why = f"but {left:.1f} of the budget are left"
        if (action.core_seconds or 0.0) > budget:
            why = "more than the whole budget, so it waits until it is due"
        reason = f"predicted to take {action.core_seconds:g} core-seconds, {why}"
        skipped.append(Skipped(action.table, action.job, reason))
    return skipped


def _without(actions: Iterable[Action], some: Iterable[Action]) -> list[Action]:
    ids = {id(each) for each in some}
    return [each for each in actions if id(each) not in ids]


def _in_turn(actions: Iterable[Action], budget: float) -> list[Action]:
    fitting, left = [], budget
    for action in actions:
        if (action.core_seconds or 0.0) <= left:
            fitting.append(action)
            left -= action.core_seconds or 0.0
    return fitting


def _gain(actions: Iterable[Action]) -> float:
    return sum(action.benefit for action in actions)


def _cost(actions: Iterable[Action]) -> float:
    return sum(action.core_seconds or 0.0 for action in actions)
