"""Choice of actions within a budget."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from lakecdc.metadata.plan import Action, Plan, Skipped, choose, parse_plan


def action(table: str, benefit: float = 1.0, core_seconds: float | None = 1.0, due: str | None = None) -> Action:
    return Action(table, "compact_data_files", "why", benefit, core_seconds, core_seconds, due=due)


def chosen(plan: Plan) -> list[str]:
    return [each.table for each in plan.chosen]


def test_without_a_budget_everything_is_chosen_by_value() -> None:
    plan = choose([action("small", 1, 10), action("large", 50, 10), action("cheap", 10, 0.1)])
    assert chosen(plan) == ["cheap", "large", "small"] and not plan.skipped


def test_a_budget_goes_to_the_most_valuable_actions_that_fit() -> None:
    earlier = Skipped("w", "sort_data_files", "outside its window")
    plan = choose([action("a", 10, 10), action("b", 99, 100), action("c", 8, 40)], [earlier], 60)
    assert chosen(plan) == ["a", "c"]
    assert plan.skipped[0] == earlier
    assert plan.skipped[1].table == "b" and "100 core-seconds, more than the whole budget" in plan.skipped[1].reason
    assert plan.core_seconds == 50


def test_a_large_valuable_action_is_not_displaced_by_small_ones() -> None:
    # more valuable for their cost, but they leave no room for the large one
    small = [action("small", 10, 4), action("smaller", 5, 2)]
    large, rest = action("large", 90, 58), action("rest", 2, 2)
    assert chosen(choose([*small, large, rest], budget=60)) == ["smaller", "large"]
    plan = choose([*small, large, rest], budget=59)
    assert chosen(plan) == ["large"] and "but 1.0 of the budget are left" in plan.skipped[0].reason
    assert chosen(choose([*small, large, rest], budget=57)) == ["smaller", "small", "rest"]


def test_due_actions_and_actions_of_unknown_cost_ignore_the_budget() -> None:
    plan = choose([action("worth", 99, 1), action("due", 0, 50, "waited"), action("unknown", 0, None)], budget=10)
    assert chosen(plan) == ["due", "unknown"]
    # the due actions have used up the budget
    assert plan.skipped[0].table == "worth" and "0.0 of the budget" in plan.skipped[0].reason


def test_findings_without_approval_are_not_chosen() -> None:
    waits = [
        Action(name, job, "why", approve=True)
        for name, job in (("a", "expire_partitions"), ("b", "remove_orphan_files"))
    ]
    plan = choose([*waits, Action("c", "expire_partitions", "why")], asks=["remove_orphan_files"])
    assert chosen(plan) == ["b", "c"] and parse_plan(json.loads(json.dumps(plan.facts()))) == plan
    (skipped,) = plan.skipped
    assert skipped.table == "a" and "it needs approval" in skipped.reason


def test_plans_survive_a_round_trip() -> None:
    plan = choose([action("a"), action("b", due="waited"), action("c", core_seconds=None)], budget=1.5)
    assert parse_plan(json.loads(json.dumps(plan.facts()))) == plan


COSTS = st.floats(0, 1000)


@given(st.lists(st.tuples(COSTS, COSTS, st.booleans()), max_size=30), st.floats(0, 3000))
def test_every_action_is_chosen_or_skipped_within_the_budget(
    guesses: list[tuple[float, float, bool]], budget: float
) -> None:
    actions = [action(str(n), benefit, cost, "due" if due else None) for n, (benefit, cost, due) in enumerate(guesses)]
    plan = choose(actions, budget=budget)
    assert sorted([*chosen(plan), *(each.table for each in plan.skipped)]) == sorted(a.table for a in actions)
    must = sum(each.core_seconds or 0 for each in actions if each.due)
    assert sum(each.core_seconds or 0 for each in plan.chosen) <= max(budget, must) + 1e-6
