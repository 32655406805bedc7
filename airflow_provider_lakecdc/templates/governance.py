"""The DAGs that pay back what ingestion owes: hourly the deletes, nightly the layout of the files, weekly old rows,
files that nothing refers to and statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from airflow.sdk import DAG, BaseOperator, TriggerRule, chain
from airflow.sdk.definitions.mappedoperator import MappedOperator

from airflow_provider_lakecdc.grouping import groups_of_tables
from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from airflow_provider_lakecdc.operators.clean_side_tables import CleanSideTablesOperator
from airflow_provider_lakecdc.operators.compact_data_files import CompactDataFilesOperator
from airflow_provider_lakecdc.operators.compute_statistics import ComputeStatisticsOperator
from airflow_provider_lakecdc.operators.discover_tables import DiscoverTablesOperator
from airflow_provider_lakecdc.operators.expire_partitions import ExpirePartitionsOperator
from airflow_provider_lakecdc.operators.expire_snapshots import ExpireSnapshotsOperator
from airflow_provider_lakecdc.operators.remove_documents import RemoveDocumentsOperator
from airflow_provider_lakecdc.operators.remove_orphan_files import RemoveOrphanFilesOperator
from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator
from airflow_provider_lakecdc.operators.rewrite_manifests import RewriteManifestsOperator
from airflow_provider_lakecdc.operators.sort_data_files import SortDataFilesOperator
from airflow_provider_lakecdc.operators.tag_snapshots import TagSnapshotsOperator
from airflow_provider_lakecdc.retry_policy import retry_policy
from airflow_provider_lakecdc.templates.config import LakeConfig, Retention
from airflow_provider_lakecdc.templates.params import IS_DRY_RUN, run_params
from airflow_provider_lakecdc.templates.steps import (
    Groups,
    finish,
    found_by,
    listed,
    mapped_step,
    new_dag,
    with_side_tables,
)

#: the hourly compaction stays out of the writers' way: only plainly small or mostly dead files, and not for long
LIGHT_COMPACTION: dict[str, Any] = {
    "min_input_files": 10,
    "small_file_ratio": 0.25,
    "delete_ratio": 0.9,
    "max_runtime": 900.0,
}
#: a table that owes very much must not keep the next hour's run waiting; the most valuable scopes come first
HOURLY_DELETES: dict[str, Any] = {"max_runtime": 1800.0}
#: orphans are told and stay, until somebody has looked at them and says otherwise
WEEKLY_ORPHANS: dict[str, Any] = {"dry_run": True}
#: jobs that side tables need: they are small, only appended to, and have neither equality deletes nor readers by key
OF_SIDE_TABLES = (
    *(CompactDataFilesOperator, RewriteManifestsOperator, ExpireSnapshotsOperator),
    RemoveOrphanFilesOperator,
)
#: operators in the order of work, each with the options that the template prefers
Steps = tuple[tuple[type[LakecdcJobOperator], dict[str, Any]], ...]
_FAILURES = """
A table that a step has failed for is left out of the later steps of that run; all other tables go on. `finished` then
does not run, which makes the whole run a failed one. (`expire_partitions` has groups of its own: what it has failed for
goes on too.)
"""
_HOURLY = """
Keeps **{tables}** in the catalog `{catalog}` fast between two nights.

1. `rewrite_delete_files` turns equality deletes into position deletes (v2) or deletion vectors (v3), and merges those,
   for a bounded time.
2. `compact_data_files` joins plainly small files, for a bounded time.

The tables that ingestion keeps beside them (remembered deletes, files read, quarantine, history) are compacted too.

Each step is one task per group of tables; Spark starts for those that need something alone.
"""
_NIGHTLY = """
Puts the files of **{tables}** in the catalog `{catalog}` in order.

1. `rewrite_delete_files` does as in the hourly DAG, to the end.
2. `sort_data_files` sorts by key where too many files hold the same keys.
3. `compact_data_files` joins small files and drops deleted rows.
4. `rewrite_manifests` makes planning cheap again.
5. `tag_snapshots` keeps a tag on the last snapshot of each of the past days.
6. `expire_snapshots` removes old snapshots and the files that only they held.
7. `clean_side_tables` removes what nobody needs from the tables that ingestion keeps beside them: remembered deletes,
   files read, quarantine, parked rounds.
8. `remove_documents` removes specs and reports of jobs that are older than `documents_max_age`, unless that is 0.

Steps 3, 4 and 6 also work on the files of these tables, and on history tables.
"""


_WEEKLY = """
Removes what **{tables}** in the catalog `{catalog}` keep for nothing, and renews what query planners know of them.

- `expire_partitions` removes rows that are older than the configuration's `retention` of their table, and keeps
  ingestion from taking them in again. Without a retention of any table there is no such task.
- `remove_orphan_files` looks for files that nothing refers to, also of the tables that ingestion keeps beside them. It
  only tells them, unless its option `dry_run` is false: then they are taken away, and deleted by the run a week later.
- `compute_statistics` counts distinct values of columns, and what is in each partition, where too many rows have
  changed since the last time. With `statistics` set to false in the configuration there is no such task.
"""


def hourly_governance_dag(config: LakeConfig) -> DAG:
    """Rewrite delete files, then a light compaction.

    :param config: needs ``tables`` or ``targets``.
    :raises ValueError: if it has neither.
    """
    steps: Steps = (
        (RewriteDeleteFilesOperator, HOURLY_DELETES),
        (CompactDataFilesOperator, LIGHT_COMPACTION),
    )
    return _chained(config, "hourly_governance", _HOURLY, steps)


def nightly_governance_dag(config: LakeConfig) -> DAG:
    """Rewrite delete files, sort, compact, rewrite manifests, tag the day, expire snapshots, clean up beside tables.

    :param config: needs ``tables`` or ``targets``.
    :raises ValueError: if it has neither.
    """
    steps: Steps = (
        (RewriteDeleteFilesOperator, {}),
        (SortDataFilesOperator, {}),
        (CompactDataFilesOperator, {}),
        (RewriteManifestsOperator, {}),
        (TagSnapshotsOperator, {}),
        (ExpireSnapshotsOperator, {}),
        (CleanSideTablesOperator, {"quarantine_table": config.job_options("ingest", "ingest").get("quarantine_table")}),
    )
    return _chained(config, "nightly_governance", _NIGHTLY, steps, with_documents=config.documents_max_age > 0)


def weekly_governance_dag(config: LakeConfig) -> DAG:
    """Expire old rows of the tables that have a retention, look for orphan files, compute stale statistics.

    :param config: needs ``tables`` or ``targets``.
    :raises ValueError: if it has neither.
    """
    steps: Steps = ((RemoveOrphanFilesOperator, WEEKLY_ORPHANS),)
    if config.retention:
        steps = ((ExpirePartitionsOperator, {}), *steps)
    if config.statistics:
        steps = (*steps, (ComputeStatisticsOperator, {}))
    return _chained(config, "weekly_governance", _WEEKLY, steps)


def _chained(config: LakeConfig, kind: str, doc: str, steps: Steps, *, with_documents: bool = False) -> DAG:
    names = [*config.maintained_tables, *config.fed_patterns]
    doc = doc.format(tables=", ".join(names), catalog=config.catalog) + _FAILURES
    with new_dag(config, kind, doc, run_params(None if config.finds_tables else names)) as dag:
        found = _discovery(config, kind, [operator for operator, _ in steps]) if config.finds_tables else None
        tasks: list[BaseOperator | MappedOperator] = [found] if found else []
        worked: list[str] = []
        for operator, defaults in steps:
            options = config.job_options(kind, operator.job_name, **defaults)
            # these have groups of their own, and no map index that tells what became of a group of the others
            is_apart = operator is ExpirePartitionsOperator
            earlier = {"after": [] if is_apart else list(worked), "trigger_rule": TriggerRule.ALL_DONE} if tasks else {}
            groups = _groups(config, operator, options, found)
            tasks.append(mapped_step(operator, config, groups, options, **earlier))
            worked += [] if is_apart else [operator.job_name]
        if with_documents:
            tasks.append(_documents(config))
        chain(*tasks)
        finish(tasks)
    return dag


def _groups(
    config: LakeConfig,
    operator: type[LakecdcJobOperator],
    options: dict[str, Any],
    found: DiscoverTablesOperator | None,
) -> Groups:
    """What a step is mapped over.

    :param options: of the step; further side tables among them go into the groups.
    :param found: the task that tells it, where the configuration does not.
    """
    size, more = config.tables_per_application, options.get("side_tables", ())
    if operator is ExpirePartitionsOperator:
        return listed(_groups_by_retention(config.retention, size))
    if found is not None:
        return found_by(found, operator.job_name)
    groups = listed([{"tables": group} for group in groups_of_tables(config.maintained_tables, size)])
    return with_side_tables(groups, config, more) if operator in OF_SIDE_TABLES else groups


def _groups_by_retention(retention: Mapping[str, Retention], tables_per_application: int = 0) -> list[dict[str, Any]]:
    """Arguments of the tasks that remove old rows: tables that keep theirs alike are in one group.

    :param retention: by table.
    """
    alike: dict[Retention, list[str]] = {}
    for table, kept in retention.items():
        alike.setdefault(kept, []).append(table)
    return [
        {"tables": group, **asdict(kept)}
        for kept, tables in alike.items()
        for group in groups_of_tables(tables, tables_per_application)
    ]


def _discovery(config: LakeConfig, kind: str, operators: Sequence[type[LakecdcJobOperator]]) -> DiscoverTablesOperator:
    """The task that finds the tables, and what may be done to each."""
    return DiscoverTablesOperator(
        task_id="discover",
        tables=config.maintained_tables,
        fed=config.fed_patterns,
        policy={pattern: asdict(policy) for pattern, policy in config.policy.items()},
        jobs=[operator.job_name for operator in operators if operator is not ExpirePartitionsOperator],
        beside={
            operator.job_name: [
                *config.quarantine_tables,
                *config.job_options(kind, operator.job_name).get("side_tables", ()),
            ]
            for operator in operators
            if operator in OF_SIDE_TABLES
        },
        history=config.history_tables,
        tables_per_application=config.tables_per_application,
        catalog_conn_id=config.catalog,
        retry_policy=retry_policy(),
    )


def _documents(config: LakeConfig) -> BaseOperator:
    """The step that removes old documents; those of the run are too young."""
    return RemoveDocumentsOperator(
        task_id="remove_documents",
        max_age=config.documents_max_age,
        is_dry=IS_DRY_RUN,
        trigger_rule=TriggerRule.ALL_DONE,
        retry_policy=retry_policy(),
    )
