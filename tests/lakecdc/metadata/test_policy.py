"""The tables that a list selects, and the jobs that their policies allow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakecdc.contract.errors import SpecError, UnsupportedError
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.protection import Approved, Protection
from lakecdc.metadata.policy import (
    ALLOW,
    APPROVE,
    EXPIRE_PARTITIONS,
    KEEPING,
    MIN_ROW_AGE,
    MIN_SNAPSHOT_AGE,
    MOST_READS,
    OWN,
    READS,
    REMOVING,
    TablePolicy,
    Window,
    combine_policies,
    inherit_policy,
    matching,
    permitted_options,
    tighten,
)

NOW = datetime(2026, 1, 31, tzinfo=UTC)

TABLES = ["crm.people", "shop.items", "shop.orders", "shop.tmp_1", "shop.eu.orders"]


@pytest.mark.parametrize(
    ("entries", "tables"),
    [
        (["shop.orders"], ["shop.orders"]),
        (["*"], TABLES),
        (["shop.*"], ["shop.items", "shop.orders", "shop.tmp_1", "shop.eu.orders"]),
        (["shop.*", "!*.tmp_*"], ["shop.items", "shop.orders", "shop.eu.orders"]),
        (["!shop.*", "*", "shop.orders"], ["crm.people"]),
        (["nothing.*"], []),
    ],
)
def test_lists_of_names_and_patterns_select_tables(entries: list[str], tables: list[str]) -> None:
    assert matching(entries, TABLES) == tables


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
    assert inherit_policy(POLICIES, table, is_named=False).jobs == jobs
    assert inherit_policy({}, table, is_named=False).jobs == set()
    # explicitly named tables are governed despite patterns
    assert inherit_policy(POLICIES, table, is_named=True).jobs == {*KEEPING, *REMOVING}


@pytest.mark.parametrize(
    ("table", "own", "jobs"),
    [
        ("hr.salaries", "rewrite_manifests, expire_snapshots", {"rewrite_manifests"}),
        ("hr.salaries", "*", set(KEEPING)),
        ("shop.items", "compact_data_files,expire_snapshots", {"compact_data_files", "expire_snapshots"}),
        ("shop.items", "none", set()),
    ],
)
def test_a_team_may_allow_harmless_jobs_and_forbid_the_rest(table: str, own: str, jobs: set[str]) -> None:
    assert tighten(inherit_policy(POLICIES, table, is_named=False), table, {ALLOW: own}).jobs == jobs


def test_each_field_is_inherited_separately() -> None:
    policies = {
        "shop.orders": TablePolicy(
            reads=9, approve=("expire_partitions",), options={"compact_data_files": {"branch": "x"}}
        ),
        "*": TablePolicy(window=Window("22:00", "06:00"), owner="lake", approve=("remove_orphan_files",)),
        "shop.*": TablePolicy(owner="shop", options={"compact_data_files": {"min_input_files": 9, "branch": "y"}}),
    }
    policy = inherit_policy(policies, "shop.orders", is_named=True)
    assert (policy.reads, policy.owner, policy.windows) == (9, "shop", (Window("22:00", "06:00"),))
    assert policy.approve == {"expire_partitions", "remove_orphan_files"}
    assert policy.options("compact_data_files", {"delete_ratio": 0.5, "branch": "z"}, NOW) == {
        "delete_ratio": 0.5,
        "min_input_files": 9,
        "branch": "x",
    }
    assert inherit_policy(policies, "crm.people", is_named=True).owner == "lake"


def test_a_team_can_only_extend_snapshot_retention() -> None:
    governed = inherit_policy({}, "shop.items", is_named=True)
    own = tighten(governed, "shop.items", {MIN_SNAPSHOT_AGE: "864000", APPROVE: "remove_orphan_files", READS: "3"})
    assert own.approve == {"remove_orphan_files"} and own.reads == 3
    assert own.options("expire_snapshots", {"max_age": 60.0}, NOW)["max_age"] == 864000
    assert own.options("expire_snapshots", {"max_age": 1e9}, NOW)["max_age"] == 1e9
    older = own.options("expire_snapshots", {"older_than": (NOW - timedelta(1)).isoformat()}, NOW)
    assert (older["older_than"], older["max_age"]) == (None, 864000)
    assert own.options("compact_data_files", {}, NOW) == {}


def test_a_team_can_only_extend_row_retention() -> None:
    job, retention = "expire_partitions", {"time_column": "at", "max_age": 86400.0}
    own = tighten(inherit_policy({}, "shop.items", is_named=True), "shop.items", {MIN_ROW_AGE: "864000"})
    assert own.options(job, retention, NOW) == {"time_column": "at", "max_age": 864000, "older_than": None}
    assert own.options(job, {**retention, "max_age": 1e9}, NOW)["max_age"] == 1e9
    for moment, age in ((NOW + timedelta(1), 864000), (NOW - timedelta(1), 864000), (NOW - timedelta(11), 0.0)):
        exact = own.options(job, {"time_column": "at", "max_age": 0.0, "older_than": moment.isoformat()}, NOW)
        assert (exact["max_age"], exact["older_than"] is None) == (age, bool(age))
    # a job without an age removes nothing, and gets none from the policy
    assert own.options(job, {}, NOW) == {}
    assert own.options("expire_snapshots", {"max_age": 60.0}, NOW) == {"max_age": 60.0}


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "a day"])
def test_an_invalid_number_of_seconds_is_refused(value: str) -> None:
    with pytest.raises(SpecError, match="min-row-age"):
        tighten(inherit_policy({}, "shop.items", is_named=True), "shop.items", {MIN_ROW_AGE: value})


@pytest.mark.parametrize(
    ("at", "begins", "ends", "holds"),
    [
        ("05:59", "22:00", "06:00", True),
        ("06:00", "22:00", "06:00", False),
        ("22:00", "22:00", "06:00", True),
        ("12:00", "09:00", "17:00", True),
        ("08:59", "09:00", "17:00", False),
    ],
)
def test_windows_may_cross_midnight(at: str, begins: str, ends: str, holds: bool) -> None:
    assert Window(begins, ends).holds(datetime.fromisoformat(f"2026-01-01T{at}+00:00")) is holds


def test_unknown_jobs_are_refused() -> None:
    with pytest.raises(SpecError, match="compact_data_files"):
        TablePolicy(("compact",))
    with pytest.raises(SpecError, match="min_input_files"):
        TablePolicy(options={"compact_data_files": {"min_files": 1}})
    with pytest.raises(SpecError, match=r"expire_snapshot'.*expire_snapshots"):
        own_policy({ALLOW: "expire_snapshot"})


@pytest.mark.parametrize("value", ["inf", "1e308", "-1", "nan"])
def test_an_owner_cannot_claim_every_budget(value: str) -> None:
    with pytest.raises(SpecError, match=READS):
        own_policy({READS: value})
    with pytest.raises(SpecError, match="reads"):
        TablePolicy(reads=float(value))
    assert own_policy({READS: f"{MOST_READS}"}).reads == MOST_READS


def test_an_allow_list_must_name_the_expiry_of_rows() -> None:
    named = inherit_policy({}, "shop.items", is_named=True)
    assert not named.forbids(EXPIRE_PARTITIONS)
    for value, forbidden in {"none": True, "expire_snapshots": True, "*": False, EXPIRE_PARTITIONS: False}.items():
        assert own_policy({ALLOW: value}).forbids(EXPIRE_PARTITIONS) is forbidden
    # it does not apply to jobs that only users start
    assert not own_policy({ALLOW: "none"}).forbids("check_tables")


def test_the_stricter_of_two_policies_applies() -> None:
    owner = own_policy({ALLOW: "expire_snapshots, rewrite_manifests", MIN_ROW_AGE: "9", APPROVE: EXPIRE_PARTITIONS})
    own = own_policy({ALLOW: "expire_snapshots, expire_partitions", MIN_ROW_AGE: "5", MIN_SNAPSHOT_AGE: "7"})
    for both in (combine_policies(owner, own), combine_policies(own, owner)):
        assert both.jobs == {"expire_snapshots"} and both.forbids(EXPIRE_PARTITIONS)
        assert (both.min_row_age, both.min_snapshot_age, both.approve) == (9, 7, frozenset({EXPIRE_PARTITIONS}))


REMOVALS: dict[str, dict[str, Any]] = {
    "expire_snapshots": {"max_age": 60.0},
    "expire_partitions": {"time_column": "at", "max_age": 60.0},
    "remove_orphan_files": {"dry_run": False},
    "clean_side_tables": {},
}


def permit(job: str, own: dict[str, str], options: dict[str, Any], **owners: dict[str, str]) -> Any:
    properties = {"shop.items": own, **{f"shop.{name}": of for name, of in owners.items()}}
    return permitted_options(job, OPTIONS[job](**options), "shop.items", properties, NOW)


def own_policy(properties: dict[str, str]) -> Any:
    return tighten(inherit_policy({}, "shop.items", is_named=True), "shop.items", properties)


@pytest.mark.parametrize(("job", "options"), REMOVALS.items())
class TestJobsReadThePolicy:
    def test_allowed_jobs_run(self, job: str, options: dict[str, Any]) -> None:
        assert permit(job, {ALLOW: job}, options) == OPTIONS[job](**options)

    def test_a_table_that_allows_nothing_refuses_removals(self, job: str, options: dict[str, Any]) -> None:
        for own, owner in (({ALLOW: "none"}, {}), ({}, {ALLOW: "compact_data_files"})):
            with pytest.raises(UnsupportedError, match=rf"{ALLOW} is .* does not allow {job}"):
                permit(job, own, options, orders=owner)
        assert permit(job, {ALLOW: "none"}, {**options, "dry_run": True}).dry_run

    @pytest.mark.parametrize("own", [{MIN_ROW_AGE: "10 years"}, {f"{OWN}min-age": "1"}, {APPROVE: "nothing"}])
    def test_an_unreadable_property_permits_nothing(
        self, job: str, options: dict[str, Any], own: dict[str, str]
    ) -> None:
        for of_table, of_owner in ((own, {}), ({}, own)):
            with pytest.raises(SpecError, match=f"{next(iter(own))} is"):
                permit(job, of_table, options, orders=of_owner)

    def test_nothing_is_removed_outside_the_configured_window(self, job: str, options: dict[str, Any]) -> None:
        # it is one in the morning there
        for begins, ends, holds in (("00:30", "02:00", True), ("23:30", "00:30", False)):
            protection = {"shop.items": Protection(windows=(Window(begins, ends),), zone="Europe/Berlin")}
            if holds:
                assert permit(job, {}, {**options, "protection": protection}).protection == protection
                continue
            with pytest.raises(UnsupportedError, match=rf"only from {begins} to {ends} \(Europe/Berlin\)"):
                permit(job, {}, {**options, "protection": protection})


@pytest.mark.parametrize("job", ["expire_partitions", "remove_orphan_files"])
def test_a_job_that_needs_approval_runs_only_with_an_approved_list(job: str) -> None:
    by_config = {"protection": {"shop.items": Protection(approve=True)}}
    for own, owner, more in (({APPROVE: job}, {}, {}), ({}, {APPROVE: job}, {}), ({}, {}, by_config)):
        options = {**REMOVALS[job], **more}
        with pytest.raises(UnsupportedError, match=rf"approve.* requires approval of what {job} removes"):
            permit(job, own, options, orders=owner)
        approved = {"shop.items": Approved("file:///found.jsonl", "4f")}
        assert permit(job, own, {**options, "approved": approved}, orders=owner).approved == approved
    # restoring files needs no permission
    assert permit("remove_orphan_files", {ALLOW: "none"}, {"dry_run": False, "action": "restore"})


def test_retention_is_the_longest_of_table_owner_and_configuration() -> None:
    old = Protection(min_age=100.0)
    for job, name in (("expire_snapshots", MIN_SNAPSHOT_AGE), ("expire_partitions", MIN_ROW_AGE)):
        for own, owner, more in (({name: "100"}, {}, {}), ({}, {name: "100"}, {}), ({}, {}, {"shop.items": old})):
            for age in ({}, {"max_age": 0.0, "older_than": NOW.isoformat()}):
                options = {**REMOVALS[job], **age, "protection": more}
                # a dry run reports removals of the same age
                for dry in (False, True):
                    permitted = permit(job, own, {**options, "dry_run": dry}, orders=owner)
                    assert (permitted.max_age, permitted.older_than) == (100, None)
        assert permit(job, {name: "30"}, REMOVALS[job]).max_age == 60
    with pytest.raises(SpecError, match="'expire_snapshots' in approve does not support approval"):
        TablePolicy(approve=("remove_orphan_files", "expire_snapshots"))
    with pytest.raises(SpecError, match="time of day"):
        Window("22", "midnight")
    governed = inherit_policy({}, "shop.items", is_named=True)
    for wrong in ({ALLOW: "compaction"}, {f"{OWN}alow": "*"}, {READS: "often"}, {APPROVE: "clean_side_tables"}):
        with pytest.raises(SpecError, match=r"shop\.items"):
            tighten(governed, "shop.items", wrong)
