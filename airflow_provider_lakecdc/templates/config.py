"""The configuration of the DAG templates: source, tables, catalog, Spark, schedules.

The objects can be created in a DAG file or read from JSON (:func:`load_config`)::

    {"catalog_conn_id": "lake",
     "source_conn_id": "shop_db",
     "source": {"type": "postgres", "slot": "lakecdc_shop"},
     "targets": [{"table": "shop.orders", "key": ["id"], "partition_by": ["bucket(8, id)"]}],
     "tables": ["shop.orders"],
     "spark": {"conn_id": "spark_default", "conf": {"spark.sql.shuffle.partitions": "16"}, "driver_memory": "2g"},
     "options": {"rewrite_delete_files": {"max_runtime": 900},
                 "hourly_governance.compact_data_files": {"max_runtime": 300}},
     "retention": {"shop.orders": {"time_column": "ordered_at", "max_age": 63072000}},
     "schedules": {"ingest": "0 * * * *", "hourly_governance": "30 * * * *", "nightly_governance": "10 2 * * *",
                   "weekly_governance": "20 4 * * 0"}}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.governance.discovery import QueryLog, TableSelection
from airflow_provider_lakecdc.submit.documents import YOUNGEST_DOCUMENT
from airflow_provider_lakecdc.templates.schedules import DAGS, Schedules
from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import parse, parse_duration, parse_moment, refuse_unknown
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.spec import FEEDING_JOBS
from lakecdc.metadata.alert_state import Alerts
from lakecdc.metadata.cost import Prices
from lakecdc.metadata.names import quarantine_of
from lakecdc.metadata.policy import TablePolicy, inherit_policy, is_pattern, matching, pattern_of
from lakecdc.metadata.readers import ReaderName

#: seconds; plans are calibrated by rows of that age
YOUNGEST_AUDIT = 30 * 24 * 3600.0


@dataclass(frozen=True)
class SparkConfig:
    """Settings of the submission; fields that are None are left to the Spark connection and to Spark.

    The connection sets the master URL (see ``airflow_provider_lakecdc.submit.launcher``).

    :param conn_id: connection to Spark: of type ``spark``, or of a platform such as EMR; default: ``[lakecdc]
        spark_conn_id``.
    :param conf: Spark settings; never a secret.
    :param deploy_mode: ``client`` or ``cluster``; default: the connection's.
    :param driver_memory: such as ``2g``.
    :param executor_memory: such as ``4g``.
    :param executor_cores: cores per executor.
    :param num_executors: executors to start.
    :param packages: further Maven coordinates, comma-separated.
    :param repositories: Maven repositories, comma-separated.
    :param archives: packed Python environments with native packages.
    :param env_vars: environment variables; never a secret.
    """

    conn_id: str | None = None
    conf: dict[str, Any] = field(default_factory=dict)
    deploy_mode: str | None = None
    driver_memory: str | None = None
    executor_memory: str | None = None
    executor_cores: int | None = None
    num_executors: int | None = None
    packages: str | None = None
    repositories: str | None = None
    archives: str | None = None
    env_vars: dict[str, str] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Return the fields that are set, as operator arguments."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) not in (None, {})}


@dataclass(frozen=True)
class Retention:
    """Retention of a table's rows; see the job ``expire_partitions``.

    :param time_column: date or timestamp column that decides which rows are old.
    :param max_age: seconds; rows from before the last midnight (UTC) of that age are removed.
    :param allow_row_deletes: remove rows also from files that have younger rows too.
    """

    time_column: str
    max_age: float
    allow_row_deletes: bool = False

    def __post_init__(self) -> None:
        if not self.max_age > 0:
            raise SpecError(f"max_age of {self.time_column!r} must be above 0 seconds, got {self.max_age}.")


@dataclass(frozen=True)
class LakeConfig:
    """The configuration of the DAGs for one group of tables.

    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``.
    :param source: the ``source`` of the ingest spec.
    :param source_conn_id: connection with the source's address and login, of the same type as the source; for ``jdbc``
        one of type ``postgres``, ``mysql``, ``sqlite`` or ``jdbc``.
    :param targets: the ``target`` objects of the ingest spec, one per table.
    :param tables: tables to maintain, and patterns with ``*`` and ``?`` as in file names; a ``!`` in front excludes
        matches. Default: the targets and their history tables. Side tables of ingestion need not be named.
    :param readers: engines that read the tables, such as ``snowflake`` and ``trino``: they choose format version and
        deletes of the targets. ``policy`` names those of a namespace or a table, and a target can have its own.
    :param freshness: promised highest age of the newest source moment that readers of the targets see, such as ``30m``.
        ``policy`` promises another one for a namespace or a table, and a target can have its own. Default: no promise.
    :param policy: rules for tables by pattern: allowed jobs for tables that are matched by patterns only (without a
        rule they are only assessed), options, windows, approvals.
    :param budgets: by DAG, the core-minutes that a run may be predicted to take; the most valuable work goes first.
        Default: no limit.
    :param query_log: a table with the reads of other tables; work on frequently read tables goes first. Default: all
        tables count the same, unless a policy sets their reads.
    :param prices: prices of CPU time and read requests, to show costs in money in plans, reports and on the page.
        Default: only core-seconds are shown.
    :param alerts: when and how to send alerts about unhealthy tables. Default: never.
    :param spark: settings of the submission to Spark.
    :param options: options of jobs, by ``<job>`` or, with precedence, by ``<dag>.<job>``.
    :param retention: retention by table, which the weekly DAG enforces; other tables keep all rows.
    :param statistics: compute statistics of columns and partitions in the weekly DAG.
    :param documents_max_age: seconds after which the nightly DAG removes specs and reports of jobs, for all DAGs that
        share ``[lakecdc] documents_uri``; at least a day, or 0 to keep them.
    :param audit_max_age: seconds after which the weekly DAG removes rows of the catalog's ``lakecdc.audit`` and
        ``lakecdc.health``; at least 30 days, which calibrate plans, or 0 to keep them.
    :param approval_timeout: seconds that an approval of a policy waits for an answer; no answer means no. The next run
        of the weekly DAG starts after all approvals are answered or timed out.
    :param schedules: schedules of the DAGs.
    :param tables_per_application: tables that share one Spark application; 0 means all.
    :param one_application: run all planned work of a governance DAG in one task and Spark application (``govern``),
        instead of one for each step and group of tables.
    :param pool: Airflow pool of all tasks, to limit the load on a catalog or cluster.
    :param dag_id_prefix: prefix of the DAG ids, as in ``<prefix>_ingest``.
    :param start_date: ISO-8601; no run is scheduled before it.
    :param retries: retries of failed tasks.
    :param owner: owner of the DAGs in Airflow.
    :param tags: further tags of the DAGs.
    """

    source: dict[str, Any] = field(default_factory=dict)
    targets: tuple[dict[str, Any], ...] = ()
    catalog_conn_id: str | None = None
    source_conn_id: str | None = None
    tables: tuple[str, ...] = ()
    spark: SparkConfig = field(default_factory=SparkConfig)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    readers: tuple[ReaderName, ...] = ()
    freshness: str | None = None
    policy: dict[str, TablePolicy] = field(default_factory=dict)
    budgets: dict[str, float] = field(default_factory=dict)
    query_log: QueryLog | None = None
    prices: Prices | None = None
    alerts: Alerts = field(default_factory=Alerts)
    retention: dict[str, Retention] = field(default_factory=dict)
    statistics: bool = True
    documents_max_age: float = 90 * 24 * 3600.0
    audit_max_age: float = 400 * 24 * 3600.0
    approval_timeout: float = 5 * 24 * 3600.0
    schedules: Schedules = field(default_factory=Schedules)
    tables_per_application: int = 0
    one_application: bool = False
    pool: str | None = None
    dag_id_prefix: str = "lakecdc"
    start_date: str = "2026-01-01T00:00:00+00:00"
    retries: int = 3
    owner: str = "lakecdc"
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = {*OPTIONS, *(f"{dag}.{job}" for dag in DAGS for job in OPTIONS)}
        refuse_unknown(self.options, known, "options")
        for name, options in self.options.items():
            parse(OPTIONS[name.rpartition(".")[2]], options, f"options.{name}")
        self._check_tables()
        refuse_unknown(self.budgets, {*DAGS} - {"ingest"}, "budgets")
        for dag, minutes in self.budgets.items():
            if not 0 < minutes < math.inf:
                raise SpecError(
                    f"budgets.{dag} must be above 0 core-minutes, got {minutes}.", hint="Remove it for no limit."
                )
        if not (self.documents_max_age == 0 or self.documents_max_age >= YOUNGEST_DOCUMENT):
            raise SpecError(
                f"documents_max_age is {self.documents_max_age}, less than {YOUNGEST_DOCUMENT:.0f} seconds, a day.",
                hint="Use a longer age, or 0 to keep all documents: running jobs need theirs.",
            )
        if not (self.audit_max_age == 0 or self.audit_max_age >= YOUNGEST_AUDIT):
            raise SpecError(
                f"audit_max_age is {self.audit_max_age}, less than {YOUNGEST_AUDIT:.0f} seconds, 30 days.",
                hint="Use a longer age, or 0 to keep all rows: they calibrate plans.",
            )
        self._check_approvals()
        self._check_debt()
        self._check_patterns("readers")
        self._check_patterns("freshness")
        self._check_freshness()
        parse_moment(self.start_date, "start_date")

    def _check_debt(self) -> None:
        if not self.schedules.debt:
            return
        if self.selection.has_patterns:
            raise SpecError(
                "schedules.debt needs tables that are named, but some of these are patterns.",
                hint="Name the tables in tables, or start the DAG by asset events (schedules.assets).",
            )
        windows = [pattern for pattern, policy in self.policy.items() if policy.window]
        if windows:
            raise SpecError(
                f"schedules.debt starts runs at any time, but the policy of {windows[0]!r} has a window.",
                hint="Remove one of them: runs outside the window would repeat without doing anything.",
            )

    def _check_freshness(self) -> None:
        for table, promise in {"the configuration": self.freshness, **self.promises}.items():
            if promise is not None:
                parse_duration(promise, f"freshness of {table}")
        if self.alerts.missed_freshness and not self.promises:
            raise SpecError(
                "alerts.missed_freshness is set, but no target has a freshness.",
                hint='Set freshness, such as "30m", for the configuration, in a policy or in a target.',
            )
        promised = [name for name, promise in self.promises.items() if promise is not None]
        outside = set(promised).difference(matching(self.tables or promised, promised))
        if self.alerts.missed_freshness and outside:
            raise SpecError(
                "alerts.missed_freshness is set, but governance does not read this target, which is not in tables.",
                table=min(outside),
                hint='Add it to tables, or set "freshness": null in the target.',
            )

    def _check_patterns(self, setting: str) -> None:
        """Refuse a setting for some of the tables that one target feeds."""
        for name in (str(target["table"]) for target in self.targets if setting not in target):
            namespace = name.rpartition(".")[0]
            for pattern, policy in self.policy.items():
                is_near = "{" in namespace or fnmatchcase(namespace, pattern.rpartition(".")[0])
                if "{" in name and getattr(policy, setting) is not None and is_near and not fnmatchcase(name, pattern):
                    raise SpecError(
                        f"The policy of {pattern!r} has {setting} for some tables of a target that feeds many.",
                        table=name,
                        hint=f"Give them a separate target, or set {setting} in the target.",
                    )

    def _check_approvals(self) -> None:
        if not self.approval_timeout > 0:
            raise SpecError(f"approval_timeout must be above 0 seconds, got {self.approval_timeout}.")
        if 0 < self.documents_max_age <= self.approval_timeout and any(self.needs_approval(job) for job in OPTIONS):
            raise SpecError(
                f"documents_max_age, {self.documents_max_age}, must exceed approval_timeout, {self.approval_timeout}.",
                hint="Increase documents_max_age: the lists to approve would be removed before the answer.",
            )

    def _check_tables(self) -> None:
        known = [*self.maintained_tables, *self.fed_patterns]
        checked = {
            f"options.{name}.checks": options.get("checks", {})
            for name, options in self.options.items()
            if name.rpartition(".")[2] == "check_tables"
        }
        for place, named in {"retention": self.retention, **checked}.items():
            unknown = [table for table in named if not matching(known, [table])]
            refuse_unknown(dict.fromkeys(unknown), set(self.maintained_tables), place)

    @property
    def catalog(self) -> str:
        """Return the id of the catalog's connection."""
        return self.catalog_conn_id or settings.catalog_conn_id()

    @property
    def target_tables(self) -> list[str]:
        """Return the target tables of ingestion."""
        return [str(target["table"]) for target in self.targets]

    @property
    def complete_targets(self) -> list[dict[str, Any]]:
        """Return the targets, each with the readers and the freshness that it has or inherits."""
        return [self._inherited(str(target["table"])) | target for target in self.targets]

    def _inherited(self, table: str) -> dict[str, Any]:
        promised = inherit_policy(self.policy, table, is_named=True).freshness or self.freshness
        known = {"readers": list(self.readers_of(table)), "freshness": promised}
        return {name: value for name, value in known.items() if value}

    @property
    def promises(self) -> dict[str, str | None]:
        """Return the promised freshness by name or pattern of the targets, None for no promise; empty without any."""
        promised = {pattern_of(str(target["table"])): target.get("freshness") for target in self.complete_targets}
        return promised if any(each is not None for each in promised.values()) else {}

    def readers_of(self, table: str) -> tuple[ReaderName, ...]:
        """Return the readers of a table without its own setting."""
        readers = inherit_policy(self.policy, table, is_named=True).readers
        return self.readers if readers is None else readers

    @property
    def maintained_tables(self) -> list[str]:
        """Return names and patterns of the maintained tables: ``tables``, or the targets and their history tables."""
        return list(self.tables) or [name for name in self._fed if "{" not in name]

    @property
    def fed_patterns(self) -> list[str]:
        """Return the patterns of maintained targets, such as ``shop.*`` for ``shop.{table}``."""
        return [] if self.tables else [name for name in self.fed_tables if is_pattern(name)]

    @property
    def selection(self) -> TableSelection:
        """Return the selection of the maintained tables."""
        tables, fed = tuple(self.maintained_tables), tuple(self.fed_patterns)
        return TableSelection(tables, fed, self.policy, self.schedules.timezone, self.query_log, self.promises)

    @property
    def fed_tables(self) -> list[str]:
        """Return targets and their history tables; placeholders are replaced by patterns."""
        return [pattern_of(name) for name in self._fed]

    @property
    def _fed(self) -> list[str]:
        return [*self.target_tables, *self.history_tables.values()]

    @property
    def history_tables(self) -> dict[str, str]:
        """Return history tables by target."""
        return {str(t["table"]): str(t["history_table"]) for t in self.targets if t.get("history_table")}

    @property
    def quarantine_tables(self) -> list[str]:
        """Return quarantines with a custom name, which does not follow from their targets' names."""
        fed = self.target_tables or self.tables
        names = dict.fromkeys(quarantine_of(table, name) for name in self.quarantine_names for table in fed)
        # quarantines of tables that a pattern matches are unknown here
        return [name for name in names if "{" not in name and not is_pattern(name)]

    @property
    def quarantine_names(self) -> list[str]:
        """Return the values of option ``quarantine_table`` of the jobs that feed tables."""
        named = dict.fromkeys(self.job_options("ingest", job).get("quarantine_table") for job in FEEDING_JOBS)
        return [str(name) for name in named if name]

    def own_tables(self, job: str, options: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
        """Return the tables of a job for single tables with their options; None for a job for all maintained tables."""
        if job == "check_tables":
            return {table: {} for table in options.get("checks", ())}
        if job == "expire_partitions":
            return {table: asdict(retention) for table, retention in self.retention.items()}
        return None

    def needs_approval(self, job: str) -> bool:
        """Check whether a policy requires approval of a job's findings."""
        return any(job in policy.approve for policy in self.policy.values())

    def job_options(self, dag: str, job: str, **defaults: Any) -> dict[str, Any]:
        """Return the options of a job in one of :data:`DAGS`; the template's defaults override the job's."""
        return {**defaults, **self.options.get(job, {}), **self.options.get(f"{dag}.{job}", {})}


def load_config(path: str | Path | None = None) -> LakeConfig:
    """Read the configuration of the DAG files.

    :param path: a JSON file; default: the environment variable ``LAKECDC_CONFIG``, then ``[lakecdc] config_file``.
    :raises SpecError: no path is set, the file cannot be read, a key is unknown or a value has the wrong type.
    """
    file = path or settings.config_file()
    if not file:
        raise SpecError(
            "No configuration is set.",
            hint=f"Set the environment variable {settings.CONFIG_FILE_VARIABLE}, or config_file in section [lakecdc] "
            "of airflow.cfg, to the path of a JSON file, see docs/reference/settings.md.",
        )
    try:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"Cannot read the configuration {file}: {error.strerror}.") from error
    except ValueError as error:
        raise SpecError(f"The configuration {file} is not JSON: {error}.") from error
    return parse_config(document)


def parse_config(document: Mapping[str, Any]) -> LakeConfig:
    """Parse and validate a configuration.

    :raises SpecError: an unknown key or a value of the wrong type.
    """
    # $schema is for editors
    known = {name: value for name, value in document.items() if name != "$schema"}
    return parse(LakeConfig, known, "the configuration")
