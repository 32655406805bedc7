"""Which tables a list stands for, and what may be done to them."""

from __future__ import annotations

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.metadata.policy import ALLOW, KEEPING, REMOVING, TablePolicy, allowed, matching

TABLES = ["crm.people", "shop.items", "shop.orders", "shop.tmp_1", "shop.eu.orders"]


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        (["shop.orders"], ["shop.orders"]),
        (["*"], TABLES),
        (["shop.*"], ["shop.items", "shop.orders", "shop.tmp_1", "shop.eu.orders"]),
        (["shop.*", "!*.tmp_*"], ["shop.items", "shop.orders", "shop.eu.orders"]),
        (["!shop.*", "*", "shop.orders"], ["crm.people"]),
        (["nothing.*"], []),
    ],
)
def test_lists_of_names_and_patterns(entries: list[str], found: list[str]) -> None:
    assert matching(entries, TABLES) == found


POLICIES = {
    "*": TablePolicy(("compact_data_files",)),
    "shop.*": TablePolicy(("*",)),
    "shop.orders": TablePolicy(()),
    "crm.?eople": TablePolicy(("expire_snapshots", "rewrite_manifests")),
}


@pytest.mark.parametrize(
    ("table", "jobs"),
    [
        ("hr.salaries", {"compact_data_files"}),
        ("shop.items", {*KEEPING, *REMOVING}),
        ("shop.orders", set()),
        ("crm.people", {"expire_snapshots", "rewrite_manifests"}),
    ],
)
def test_the_most_specific_pattern_decides(table: str, jobs: set[str]) -> None:
    assert allowed(POLICIES, table, {}) == jobs
    assert allowed({}, table, {}) == set()


@pytest.mark.parametrize(
    ("table", "own", "jobs"),
    [
        ("hr.salaries", "rewrite_manifests, expire_snapshots", {"rewrite_manifests"}),
        ("hr.salaries", "*", set(KEEPING)),
        ("shop.items", "compact_data_files,expire_snapshots", {"compact_data_files", "expire_snapshots"}),
        ("shop.items", "none", set()),
    ],
)
def test_a_team_may_allow_what_removes_nothing_and_forbid_the_rest(table: str, own: str, jobs: set[str]) -> None:
    assert allowed(POLICIES, table, {ALLOW: own}) == jobs


def test_words_that_are_no_jobs_are_refused() -> None:
    with pytest.raises(SpecError, match="compact_data_files"):
        TablePolicy(("compact",))
    with pytest.raises(SpecError, match="shop.items"):
        allowed(POLICIES, "shop.items", {ALLOW: "compaction"})
