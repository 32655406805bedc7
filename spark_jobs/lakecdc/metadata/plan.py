"""Which jobs are done on which tables, if not everything fits: what spares readers most for what it costs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lakecdc.contract import fields
from lakecdc.contract.protection import Protection

# actions that are passed over of which each is tried in place of others
_TRIED = 50
_NOBODY_IS_ASKED = (
    "a person has to approve it, and nobody is asked: a DAG does so if a policy of its configuration has approve"
)


@dataclass(frozen=True)
class Action:
    """One job that one table may need.

    :param reason: what speaks for it.
    :param benefit: opened files that readers are spared (:class:`lakecdc.metadata.work.Work`), weighed by how much the
        table is read.
    :param core_seconds: what it is predicted to take; None if only the job can tell.
    :param guessed_core_seconds: the same before it was corrected by what jobs have taken.
    :param due: why it cannot wait, if it cannot.
    :param options: options of the job that the table's policy prefers.
    :param approve: a person is asked before anything is taken away.
    :param protection: what the job is told of the table's policy, if it removes something.
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
        """Opened files that readers are spared for a core-second."""
        return self.benefit / max(self.core_seconds or 0.0, 0.001)


@dataclass(frozen=True)
class Skipped:
    """One job that is not done on one table, and why."""

    table: str
    job: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """What is done, and what is not.

    :param chosen: in the order in which they were chosen.
    :param budget_core_seconds: what they were to take at most; None is no limit.
    """

    chosen: tuple[Action, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    budget_core_seconds: float | None = None

    @property
    def core_seconds(self) -> float:
        """What all that is done is predicted to take, as far as that can be told."""
        return round(_cost(self.chosen), 3)

    @property
    def benefit(self) -> float:
        """Opened files that all of it spares readers."""
        return _gain(self.chosen)

    def of_job(self, job: str) -> list[Action]:
        """What is done by one job, in the order of choice, what a person is asked of included."""
        return [action for action in self.chosen if action.job == job]

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def parse_plan(document: Mapping[str, Any]) -> Plan:
    """Read a plan back.

    :raises SpecError: it is none.
    """
    return fields.parse(Plan, document, "plan")


def choose(
    actions: Iterable[Action],
    skipped: Sequence[Skipped] = (),
    budget: float | None = None,
    asks: Collection[str] = (),
) -> Plan:
    """Choose what is due and what only a job can tell, then what is worth most, as long as the budget lasts.

    What does not fit is passed over for what does, unless more is gained by doing it and leaving out others. It is
    chosen once it has become due.

    :param skipped: what has been left out already.
    :param budget: core-seconds; None is no limit.
    :param asks: jobs of whose findings a person is asked; of the others, what waits for one is left out.
    """
    found = list(actions)
    unasked = [action for action in found if action.approve and action.job not in asks]
    waiting = [action for action in found if not action.approve or action.job in asks]
    must = [action for action in waiting if action.due or action.core_seconds is None]
    may = [action for action in waiting if not (action.due or action.core_seconds is None)]
    chosen, left_out = list(must), [*skipped, *(Skipped(a.table, a.job, _NOBODY_IS_ASKED) for a in unasked)]
    left = None if budget is None else budget - _cost(must)
    may.sort(key=lambda a: (-a.worth, a.core_seconds or 0.0, a.table))
    fitting = may if left is None else _most_gained(may, left)
    chosen += fitting
    if budget is not None and left is not None:
        left_out += _passed_over(may, fitting, budget, max(left - _cost(fitting), 0.0))
    return Plan(tuple(chosen), tuple(left_out), budget)


def _most_gained(ranked: Sequence[Action], budget: float) -> list[Action]:
    """What fits one after the other, or else the same with one of those ahead of all others that would be passed over.

    :param ranked: what is worth most first.
    :return: in their order.
    """
    found = first = _in_turn(ranked, budget)
    others = [each for each in _without(ranked, first) if (each.core_seconds or 0.0) <= budget]
    for ahead in others[:_TRIED]:
        with_it = _in_turn([ahead, *_without(ranked, [ahead])], budget)
        found = max(found, with_it, key=_gain)
    return _without(ranked, _without(ranked, found))


def _passed_over(ranked: Sequence[Action], chosen: Sequence[Action], budget: float, left: float) -> list[Skipped]:
    found = []
    for action in _without(ranked, chosen):
        why = f"and {left:.1f} of the budget are left"
        if (action.core_seconds or 0.0) > budget:
            why = "more than the whole budget: it waits until it is due"
        reason = f"predicted to take {action.core_seconds:g} core-seconds, {why}"
        found.append(Skipped(action.table, action.job, reason))
    return found


def _without(actions: Iterable[Action], some: Iterable[Action]) -> list[Action]:
    ids = {id(each) for each in some}
    return [each for each in actions if id(each) not in ids]


def _in_turn(actions: Iterable[Action], budget: float) -> list[Action]:
    found, left = [], budget
    for action in actions:
        if (action.core_seconds or 0.0) <= left:
            found.append(action)
            left -= action.core_seconds or 0.0
    return found


def _gain(actions: Iterable[Action]) -> float:
    return sum(action.benefit for action in actions)


def _cost(actions: Iterable[Action]) -> float:
    return sum(action.core_seconds or 0.0 for action in actions)
