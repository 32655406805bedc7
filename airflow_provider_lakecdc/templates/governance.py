"""The DAGs that pay back what ingestion owes: hourly the deletes, nightly the layout of the files, weekly old rows,
files that nothing refers to and statistics.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, BaseOperator, TriggerRule, chain
from airflow.sdk.definitions.mappedoperator import MappedOperator

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from airflow_provider_lakecdc.operators.clean_side_tables import CleanSideTablesOperator
from airflow_provider_lakecdc.operators.compact_data_files import CompactDataFilesOperator
from airflow_provider_lakecdc.operators.compute_statistics import ComputeStatisticsOperator
from airflow_provider_lakecdc.operators.expire_partitions import ExpirePartitionsOperator
from airflow_provider_lakecdc.operators.expire_snapshots import ExpireSnapshotsOperator
from airflow_provider_lakecdc.operators.remove_documents import RemoveDocumentsOperator
from airflow_provider_lakecdc.operators.remove_orphan_files import RemoveOrphanFilesOperator
from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator
from airflow_provider_lakecdc.operators.rewrite_manifests import RewriteManifestsOperator
from airflow_provider_lakecdc.operators.sort_data_files import SortDataFilesOperator
from airflow_provider_lakecdc.operators.tag_snapshots import TagSnapshotsOperator
from airflow_provider_lakecdc.retry_policy import retry_policy
from airflow_provider_lakecdc.templates.config import LakeConfig
from airflow_provider_lakecdc.templates.groups import groups_by_retention, groups_of_tables
from airflow_provider_lakecdc.templates.params import IS_DRY_RUN, run_params
from airflow_provider_lakecdc.templates.steps import finish, mapped_step, new_dag

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
    :raises ValueError: if it has neither, or only targets that stand for many tables.
    """
    steps: Steps = (
        (RewriteDeleteFilesOperator, HOURLY_DELETES),
        (CompactDataFilesOperator, LIGHT_COMPACTION),
    )
    return _chained(config, "hourly_governance", _HOURLY, steps)


def nightly_governance_dag(config: LakeConfig) -> DAG:
    """Rewrite delete files, sort, compact, rewrite manifests, tag the day, expire snapshots, clean up beside tables.

    :param config: needs ``tables`` or ``targets``.
    :raises ValueError: if it has neither, or only targets that stand for many tables.
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
    :raises ValueError: if it has neither, or only targets that stand for many tables.
    """
    steps: Steps = ((RemoveOrphanFilesOperator, WEEKLY_ORPHANS),)
    if config.retention:
        steps = ((ExpirePartitionsOperator, {}), *steps)
    if config.statistics:
        steps = (*steps, (ComputeStatisticsOperator, {}))
    return _chained(config, "weekly_governance", _WEEKLY, steps)


def _chained(config: LakeConfig, kind: str, doc: str, steps: Steps, *, with_documents: bool = False) -> DAG:
    tables = config.maintained_tables
    if patterns := [name for name in tables if "{" in name]:
        raise ValueError(
            f"The target {patterns[0]!r} stands for many tables, and which they are is only known to the job: "
            'list the tables to maintain under "tables".'
        )
    doc = doc.format(tables=", ".join(tables), catalog=config.catalog) + _FAILURES
    with new_dag(config, kind, doc, run_params(tables)) as dag:
        tasks: list[BaseOperator | MappedOperator] = []
        of_step: dict[str, list[list[str]]] = {}
        for operator, defaults in steps:
            groups = _groups(config, operator)
            tables = [group["tables"] for group in groups]
            # a step of other groups has no map index that tells what became of these tables
            after = [task_id for task_id, others in of_step.items() if others == tables]
            earlier = {"after": after, "trigger_rule": TriggerRule.ALL_DONE} if tasks else {}
            of_step[operator.job_name] = tables
            step = mapped_step(
                operator,
                config,
                groups,
                config.job_options(kind, operator.job_name, **defaults),
                with_side_tables=operator in OF_SIDE_TABLES,
                **earlier,
            )
            tasks.append(step)
        if with_documents:
            tasks.append(_documents(config))
        chain(*tasks)
        finish(tasks)
    return dag


def _documents(config: LakeConfig) -> BaseOperator:
    """The step that removes old documents; those of the run are too young."""
    return RemoveDocumentsOperator(
        task_id="remove_documents",
        max_age=config.documents_max_age,
        is_dry=IS_DRY_RUN,
        trigger_rule=TriggerRule.ALL_DONE,
        retry_policy=retry_policy(),
    )


def _groups(config: LakeConfig, operator: type[LakecdcJobOperator]) -> list[dict[str, Any]]:
    size = config.tables_per_application
    if operator is ExpirePartitionsOperator:
        return groups_by_retention(config.retention, size)
    return [{"tables": group} for group in groups_of_tables(config.maintained_tables, size)]
