"""Assess tables and their side tables, several at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from airflow_provider_lakecdc.governance.assessment import Assessed, Assessment, Steps
from airflow_provider_lakecdc.governance.discovery import TableSelection, select_tables
from airflow_provider_lakecdc.governance.table_assessment import (
    Candidate,
    MainTables,
    Result,
    Scope,
    assess_loaded,
    plan_unreadable,
)
from airflow_provider_lakecdc.lake.tables import read_tables
from lakecdc.metadata import names
from lakecdc.metadata.freshness import judge_table
from lakecdc.metadata.policy import EVERYTHING, NOTHING, Governed, combine_policies

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

_CLEAN = "clean_side_tables"


def assess(
    catalog: CatalogConnection,
    selection: TableSelection,
    steps: Steps,
    *,
    history: Mapping[str, str] | None = None,
    only: Sequence[str] = (),
    is_dry: bool = False,
) -> Assessment:
    """Assess tables and their side tables.

    Nothing is removed from a table that cannot be read, as its properties may forbid it. Other work is left to the jobs
    if the table is named, and not planned if only a pattern matched it.

    :param history: history table by target.
    :param only: restrict the assessment to these tables and their side tables; empty means all.
    :param is_dry: run all jobs dry.
    """
    moment = datetime.now(UTC)
    tables = select_tables(catalog, selection)
    reads = selection.query_log.reads(catalog, tables.tables, moment) if selection.query_log else {}
    scope = Scope(selection, steps, moment.astimezone(ZoneInfo(selection.zone)), is_dry, reads)
    candidates = [Candidate(name) for name in tables.tables if not only or name in only]
    results = _assess(catalog, scope, candidates)
    beside = _side_tables(results, steps, history or {}, with_shared=not only)
    if tables.existing is not None:
        beside = [each for each in beside if each.table in tables.existing]
    results += _assess(catalog, scope, beside)
    if steps.beside and not only:
        results = _skip_needless_cleaning(
            results, {name for more in steps.beside.values() for name in more if not names.is_lake_table(name)}
        )
    return Assessment(
        moment.isoformat(timespec="milliseconds"),
        tuple(each.assessed for each in results),
        tuple(action for each in results for action in each.actions),
        tuple(skipped for each in results for skipped in each.skipped),
        is_partial=bool(only),
    )


def _assess(catalog: CatalogConnection, scope: Scope, candidates: Sequence[Candidate]) -> list[Result]:
    """Assess tables; omit missing ones unless the configuration names them."""
    by_name = {each.table: each for each in candidates}

    def read(name: str, table: Table | None) -> Result | None:
        if table is not None:
            return assess_loaded(table, scope, by_name[name])
        # a table that matched a pattern may be gone since the catalog was listed
        is_named = name in scope.selection.named
        freshness = judge_table(scope.selection.promises, name, None, scope.moment, is_fed=False)
        return Result(Assessed(name, is_absent=True, freshness=freshness), NOTHING) if is_named else None

    def failed(name: str, error: Exception) -> Result:
        return plan_unreadable(scope, by_name[name], error)

    return [each for each in read_tables(catalog, list(by_name), read, failed).values() if each is not None]


def _side_tables(
    results: Sequence[Result], steps: Steps, history: Mapping[str, str], *, with_shared: bool
) -> list[Candidate]:
    """List the possible side tables with their main tables; shared ones have unknown main tables."""
    owners: dict[str, list[Result]] = {}
    for each in results:
        if not (each.governed.jobs or each.assessed.error):
            continue
        own = [history[each.assessed.table]] if each.assessed.table in history else []
        for name in (*names.side_tables(each.assessed.table), *own):
            owners.setdefault(name, []).append(each)
    every = frozenset(steps.beside)
    candidates = {
        name: Candidate(name, _main_tables(of), every)
        for name, of in owners.items()
        if any(each.governed.jobs for each in of)
    }
    # a main table that cannot be read must not restrict the shared side tables
    readable_first = sorted(results, key=lambda each: bool(each.assessed.error))
    first = next((each for each in readable_first if each.governed.jobs), None)
    if with_shared and first is not None:
        policy = first.governed
        shared = Governed(policy.jobs, team_jobs=policy.team_jobs, approve=policy.approve, owner=policy.owner)
        for name in dict.fromkeys(name for more in steps.beside.values() for name in more):
            jobs = frozenset(job for job, more in steps.beside.items() if name in more)
            candidates.setdefault(name, Candidate(name, MainTables(first.assessed.table, shared), jobs))
    known = {each.assessed.table for each in results}
    return [each for name, each in candidates.items() if name not in known and each.jobs]


def _main_tables(results: Sequence[Result]) -> MainTables:
    """Combine the main tables of a side table into one with the tightest of their policies."""
    # a main table that cannot be read may allow no job; nothing is removed from what it shares with others
    governed = reduce(
        combine_policies, (each.governed if each.governed.jobs else EVERYTHING.keeping() for each in results)
    )
    # options and priorities of main tables do not apply to side tables
    governed = replace(governed, own_options={}, reads=None, max_wait=None, min_score=None)
    tables = tuple(each.assessed.table for each in results)
    return MainTables(tables[0], governed, tables)


def _skip_needless_cleaning(results: Sequence[Result], shared: Collection[str]) -> list[Result]:
    """Remove ``clean_side_tables`` from tables without own or shared side tables."""
    existing = {each.assessed.table for each in results if each.assessed.beside}
    return [
        each
        if existing & {*names.side_tables(each.assessed.table), *shared}
        else replace(
            each,
            actions=tuple(action for action in each.actions if action.job != _CLEAN),
            skipped=tuple(skipped for skipped in each.skipped if skipped.job != _CLEAN),
        )
        for each in results
    ]
