"""What the DAG templates are told: which source, which tables, which catalog, which Spark, when.

The same objects can be built in a DAG file or read from JSON (:func:`load_config`)::

    {"catalog_conn_id": "lake",
     "source_conn_id": "shop_db",
     "source": {"type": "postgres", "slot": "lakecdc_shop"},
     "targets": [{"table": "shop.orders", "key": ["id"], "partition_by": ["bucket(8, id)"]}],
     "tables": ["shop.orders"],
     "spark": {"conn_id": "spark_default", "conf": {"spark.sql.shuffle.partitions": "16"}, "driver_memory": "2g"},
     "options": {"rewrite_delete_files": {"engine": "join"},
                 "hourly_governance.compact_data_files": {"max_runtime": 300}},
     "retention": {"shop.orders": {"time_column": "ordered_at", "max_age": 63072000}},
     "schedules": {"ingest": "0 * * * *", "hourly_governance": "30 * * * *", "nightly_governance": "10 2 * * *",
                   "weekly_governance": "20 4 * * 0"}}
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.documents.cleanup import YOUNGEST_DOCUMENT
from airflow_provider_lakecdc.governance.discovery import Wanted
from airflow_provider_lakecdc.governance.query_log import QueryLog
from airflow_provider_lakecdc.templates.schedules import DAGS, Schedules
from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import parse, refuse_unknown
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.spec import FEEDING_JOBS
from lakecdc.metadata.hurts import Alerts
from lakecdc.metadata.names import quarantine_of
from lakecdc.metadata.policy import TablePolicy, is_pattern, matching

#: seconds: plans predict by the rows of that time
YOUNGEST_AUDIT = 30 * 24 * 3600.0


@dataclass(frozen=True)
class SparkConfig:
    """How jobs are submitted; a field left None is the Spark connection's and Spark's own business.

    The master URL belongs to the connection (see ``airflow_provider_lakecdc.submit.launcher``).

    :param conn_id: connection of type ``spark``; default: ``[lakecdc] spark_conn_id``.
    :param conf: Spark settings; never a secret.
    :param deploy_mode: ``client`` or ``cluster``; default: the connection's.
    :param driver_memory: such as ``2g``.
    :param executor_memory: such as ``4g``.
    :param executor_cores: cores per executor.
    :param num_executors: executors to start.
    :param packages: further Maven coordinates with commas between.
    :param repositories: Maven repositories with commas between.
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
        """The fields that are set, as operator arguments."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) not in (None, {})}


@dataclass(frozen=True)
class Retention:
    """How long a table keeps its rows; see the job ``expire_partitions``.

    :param time_column: column of dates or moments whose older rows are removed.
    :param max_age: seconds; rows from before the last midnight (UTC) that is as long ago are removed.
    :param allow_row_deletes: remove rows also from files that hold rows which stay.
    """

    time_column: str
    max_age: float
    allow_row_deletes: bool = False

    def __post_init__(self) -> None:
        if not self.max_age > 0:
            raise SpecError(f"The max_age of {self.time_column!r} is {self.max_age}, not above 0 seconds.")


@dataclass(frozen=True)
class LakeConfig:
    """Everything the DAGs need to know about one group of tables.

    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``.
    :param source: the ``source`` of the ingest spec.
    :param source_conn_id: connection with the source's address and login, of the same type as the source; for ``jdbc``
        one of type ``postgres``, ``mysql``, ``sqlite`` or ``jdbc``.
    :param targets: the ``target`` objects of the ingest spec, one per table.
    :param tables: tables to maintain, and patterns of them: ``*`` and ``?`` stand for what they do in names of files,
        and ``!`` in front leaves out what matches. Default: those of the targets and their history tables. The tables
        that ingestion keeps beside them need not be named.
    :param policy: by pattern, what holds for tables: what may be done to those that only a pattern has found (without
        it they are looked at alone), options, windows, approvals.
    :param budgets: by DAG, the core-minutes that a run may be predicted to take; what is worth most goes first.
        Default: no limit.
    :param query_log: a table that tells how often others are read; what spares much-read tables goes first. Default:
        all are read alike, unless a policy says otherwise.
    :param alerts: when somebody is told of a table that hurts, and how. Default: nobody is.
    :param spark: how jobs are submitted.
    :param options: options of jobs, by ``<job>`` or, with precedence, by ``<dag>.<job>``.
    :param retention: by table, whose old rows the weekly DAG removes; all other tables keep all of theirs.
    :param statistics: compute the statistics of columns and partitions in the weekly DAG.
    :param documents_max_age: seconds after which the nightly DAG removes specs and reports of jobs, of all DAGs that
        keep theirs in ``[lakecdc] documents_uri``; not less than a day, and 0 keeps them.
    :param audit_max_age: seconds after which the weekly DAG removes rows of the catalog's ``lakecdc.audit`` and
        ``lakecdc.health``; not less than 30 days, by which plans predict, and 0 keeps them.
    :param approval_timeout: seconds for which a question stands that ``approve`` of a policy asks for; no answer by
        then is a no. The next run of the weekly DAG begins once all questions are answered or over.
    :param schedules: when the DAGs run.
    :param tables_per_application: tables that share one Spark application; 0 is all of them.
    :param one_application: do all that a governance DAG has planned in one task and Spark application (``govern``),
        instead of one for each step and group of tables.
    :param pool: Airflow pool of all tasks, to bound what runs on one catalog or cluster at once.
    :param dag_id_prefix: the DAGs are called ``<prefix>_ingest`` and so on.
    :param start_date: ISO-8601; nothing is scheduled before it.
    :param retries: how often a failed task is tried again.
    :param owner: owner of the DAGs as Airflow shows it.
    :param tags: further tags.
    """

    source: dict[str, Any] = field(default_factory=dict)
    targets: tuple[dict[str, Any], ...] = ()
    catalog_conn_id: str | None = None
    source_conn_id: str | None = None
    tables: tuple[str, ...] = ()
    spark: SparkConfig = field(default_factory=SparkConfig)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    policy: dict[str, TablePolicy] = field(default_factory=dict)
    budgets: dict[str, float] = field(default_factory=dict)
    query_log: QueryLog | None = None
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
                    f"budgets.{dag} is {minutes}, not above 0 core-minutes.", hint="Leave it out for no limit."
                )
        if not (self.documents_max_age == 0 or self.documents_max_age >= YOUNGEST_DOCUMENT):
            raise SpecError(
                f"documents_max_age is {self.documents_max_age}, less than {YOUNGEST_DOCUMENT:.0f} seconds, a day.",
                hint="Jobs that run need theirs; 0 keeps all of them.",
            )
        if not (self.audit_max_age == 0 or self.audit_max_age >= YOUNGEST_AUDIT):
            raise SpecError(
                f"audit_max_age is {self.audit_max_age}, less than {YOUNGEST_AUDIT:.0f} seconds, 30 days.",
                hint="Plans predict by the runs of that time; 0 keeps all rows.",
            )
        self._check_approvals()
        self._check_debt()
        try:
            datetime.fromisoformat(self.start_date)
        except ValueError as error:
            raise SpecError(f"start_date is {self.start_date!r}, which is no ISO-8601 moment.") from error

    def _check_debt(self) -> None:
        if not self.schedules.debt:
            return
        if self.finds_tables:
            raise SpecError(
                "schedules.debt waits for tables that are named, and only the catalog can tell some of these.",
                hint="Name them in tables, or let events of assets start the DAG (schedules.assets).",
            )
        windows = [pattern for pattern, policy in self.policy.items() if policy.window]
        if windows:
            raise SpecError(
                f"schedules.debt starts runs at any time, and the policy of {windows[0]!r} has a window.",
                hint="Keep one of them: runs outside the window would follow one another and do nothing.",
            )

    def _check_approvals(self) -> None:
        if not self.approval_timeout > 0:
            raise SpecError(f"approval_timeout is {self.approval_timeout}, not above 0 seconds.")
        if 0 < self.documents_max_age <= self.approval_timeout and any(self.asks_about(job) for job in OPTIONS):
            raise SpecError(
                f"documents_max_age is {self.documents_max_age}, and approval_timeout {self.approval_timeout}.",
                hint="The lists that a person is asked about would be gone before the answer.",
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
        """Id of the catalog's connection."""
        return self.catalog_conn_id or settings.catalog_conn_id()

    @property
    def target_tables(self) -> list[str]:
        """Tables that are fed."""
        return [str(target["table"]) for target in self.targets]

    @property
    def maintained_tables(self) -> list[str]:
        """Tables and patterns of tables that are maintained: what is named, or the targets and their history tables."""
        return list(self.tables) or [name for name in self._fed if "{" not in name]

    @property
    def fed_patterns(self) -> list[str]:
        """Patterns of the tables that are maintained because a target stands for them, such as ``shop.{table}``."""
        return [] if self.tables else [name for name in self.fed_tables if is_pattern(name)]

    @property
    def wanted(self) -> Wanted:
        """The tables that are maintained, as the catalog is searched for them."""
        return Wanted(tuple(self.maintained_tables), tuple(self.fed_patterns))

    @property
    def finds_tables(self) -> bool:
        """Whether only the catalog can tell which tables are maintained."""
        return bool(self.fed_patterns) or any(is_pattern(name) for name in self.tables)

    @property
    def fed_tables(self) -> list[str]:
        """Targets and their history tables; patterns where a target stands for many."""
        return [re.sub(r"\{[^{}]*\}", "*", name) for name in self._fed]

    @property
    def _fed(self) -> list[str]:
        return [*self.target_tables, *self.history_tables.values()]

    @property
    def history_tables(self) -> dict[str, str]:
        """History tables by target."""
        return {str(t["table"]): str(t["history_table"]) for t in self.targets if t.get("history_table")}

    @property
    def quarantine_tables(self) -> list[str]:
        """Quarantines with a name of their own, which cannot be told from their targets' names."""
        fed = self.target_tables or self.tables
        found = dict.fromkeys(quarantine_of(table, name) for name in self.quarantine_names for table in fed)
        # that of a table which a pattern stands for is not known here
        return [name for name in found if "{" not in name and not is_pattern(name)]

    @property
    def quarantine_names(self) -> list[str]:
        """The options ``quarantine_table`` of the jobs that feed, as they are written."""
        named = dict.fromkeys(self.job_options("ingest", job).get("quarantine_table") for job in FEEDING_JOBS)
        return [str(name) for name in named if name]

    def own_tables(self, job: str, options: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
        """Tables that a job is for alone, with the options that each has; None if it is for all that are maintained.

        :param options: of the job.
        """
        if job == "check_tables":
            return {table: {} for table in options.get("checks", ())}
        if job == "expire_partitions":
            return {table: asdict(kept) for table, kept in self.retention.items()}
        return None

    def asks_about(self, job: str) -> bool:
        """Whether a person is asked about what a job finds in some table."""
        return any(job in policy.approve for policy in self.policy.values())

    @property
    def first_day(self) -> datetime:
        """``start_date`` with a zone."""
        moment = datetime.fromisoformat(self.start_date)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    def job_options(self, dag: str, job: str, **defaults: Any) -> dict[str, Any]:
        """Options of a job in one of the DAGs.

        :param dag: one of :data:`DAGS`.
        :param defaults: what the template prefers to the job's own defaults.
        """
        return {**defaults, **self.options.get(job, {}), **self.options.get(f"{dag}.{job}", {})}


def load_config(path: str | Path | None = None) -> LakeConfig:
    """Read the configuration of the DAG files.

    :param path: a JSON file; default: the environment variable ``LAKECDC_CONFIG``, then ``[lakecdc] config_file``.
    :raises SpecError: no path anywhere, an unreadable file, an unknown key, a value of the wrong type.
    """
    found = path or settings.config_file()
    if not found:
        raise SpecError(
            "Nobody has said what to feed and to maintain: set the environment variable "
            f"{settings.CONFIG_FILE_VARIABLE}, or config_file in the section [lakecdc] of airflow.cfg, to the path of "
            "a JSON file as docs/settings.md describes it."
        )
    try:
        document = json.loads(Path(found).read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"The configuration {found} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise SpecError(f"The configuration {found} is not JSON: {error}.") from error
    return parse_config(document)


def parse_config(document: Mapping[str, Any]) -> LakeConfig:
    """Check a configuration.

    :raises SpecError: an unknown key or a value of the wrong type.
    """
    # what an editor checks the file by is none of our business
    known = {name: value for name, value in document.items() if name != "$schema"}
    return parse(LakeConfig, known, "the configuration")
