"""The operator that assesses the tables of governance, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.audit import record_health
from airflow_provider_lakecdc.governance.assess_tables import assess
from airflow_provider_lakecdc.governance.assessment import Assessment, Steps
from airflow_provider_lakecdc.governance.discovery import QueryLog, TableSelection
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.submit.documents import Documents
from airflow_provider_lakecdc.submit.submission import check_conf, is_true, table_list, typed_options
from lakecdc.contract.fields import parse
from lakecdc.metadata.policy import TablePolicy

#: XCom with the state of the least healthy tables
TABLES_KEY = "tables"
_MOST_SHOWN = 50


class AssessTablesOperator(BaseOperator):
    """Assess from metadata how healthy tables are, what they need, and which jobs are allowed on them.

    Names and patterns select the tables, so new tables need no change of a DAG. The return value is the URI of the
    assessment, which ``PlanOperator`` reads; the XCom ``tables`` has the state of up to fifty tables, the least healthy
    first.

    :param tables: ``namespace.name``, patterns of it with ``*`` and ``?``, and exclusions that begin with ``!``.
        (templated)
    :param fed: patterns of tables that ingestion feeds. (templated)
    :param policy: fields of ``lakecdc.metadata.policy.TablePolicy`` by pattern.
    :param steps: options of each job that the tables may need, in the order of work.
    :param beside: jobs that also work on shared side tables, by job.
    :param own: tables of jobs for single tables, by job, with each table's options.
    :param history: history table by target.
    :param only: assess only these of the tables; empty means all. (templated)
    :param zone: time zone of the windows of policies.
    :param query_log: fields of ``airflow_provider_lakecdc.governance.discovery.QueryLog``, for read frequencies.
    :param freshness: promised freshness by name or pattern of ingestion's targets, such as ``30m``, or None.
    :param is_dry: run all jobs dry. (templated)
    :param strict_run_conf: refuse a DAG run whose ``conf`` has keys that are not params of the DAG.
    :param documents_uri: folder for the assessment; default: ``[lakecdc] documents_uri``. (templated)
    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``. (templated)
    """

    template_fields: Sequence[str] = ("tables", "fed", "only", "is_dry", "documents_uri", "catalog_conn_id")

    def __init__(
        self,
        *,
        tables: Sequence[str] = (),
        fed: Sequence[str] = (),
        policy: Mapping[str, Mapping[str, Any]] | None = None,
        steps: Mapping[str, Mapping[str, Any]] | None = None,
        beside: Mapping[str, Sequence[str]] | None = None,
        own: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
        history: Mapping[str, str] | None = None,
        only: str | Sequence[str] = (),
        zone: str = "UTC",
        query_log: Mapping[str, Any] | None = None,
        freshness: Mapping[str, str | None] | None = None,
        is_dry: bool | str = False,
        strict_run_conf: bool = False,
        documents_uri: str | None = None,
        catalog_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = list(tables)
        self.fed = list(fed)
        self.policy = dict(policy or {})
        self.steps = {job: dict(options) for job, options in (steps or {}).items()}
        self.beside = {job: list(names) for job, names in (beside or {}).items()}
        self.own = {job: dict(tables) for job, tables in (own or {}).items()}
        self.history = dict(history or {})
        self.only = only
        self.zone = zone
        self.query_log = dict(query_log) if query_log else None
        self.freshness = dict(freshness or {})
        self.is_dry = is_dry
        self.strict_run_conf = strict_run_conf
        self.documents_uri = documents_uri or settings.documents_uri()
        self.catalog_conn_id = catalog_conn_id or settings.catalog_conn_id()

    def execute(self, context: Context) -> str:
        """Assess the tables, and return the URI of the assessment."""
        if self.strict_run_conf:
            check_conf(context)
        assessment = self.assessed(table_list(self.only))
        self._report(context, assessment)
        if settings.audit():
            # rows of tables that a job measures come from that job's operator
            measured = {each.table: each.health for each in assessment.tables if each.health and not each.measured_at}
            record_health(get_catalog(self.catalog_conn_id), datetime.fromisoformat(assessment.measured_at), measured)
        return Documents.of_try(self.documents_uri, context).write("assessment.json", assessment.to_json())

    def assessed(self, only: Sequence[str] = ()) -> Assessment:
        """Assess the tables, or only some of them, without a DAG run."""
        policies = {pattern: parse(TablePolicy, each, f"policy.{pattern}") for pattern, each in self.policy.items()}
        query_log = parse(QueryLog, self.query_log, "query_log") if self.query_log else None
        return assess(
            get_catalog(self.catalog_conn_id),
            TableSelection(tuple(self.tables), tuple(self.fed), policies, self.zone, query_log, self.freshness),
            Steps({job: typed_options(job, options) for job, options in self.steps.items()}, self.beside, self.own),
            history=self.history,
            only=only,
            is_dry=is_true(self.is_dry),
        )

    def _report(self, context: Context, assessment: Assessment) -> None:
        for table, error in assessment.unreadable.items():
            self.log.warning("Cannot assess %s, so nothing is removed from it: %s", table, error)
        shown = sorted(assessment.tables, key=lambda each: (each.health or {}).get("score", -1.0))[:_MOST_SHOWN]
        self.log.info("%d tables, least healthy first:", len(assessment.tables))
        for each in shown:
            score = f"{each.health['score']:.0f}" if each.health else "-"
            may = "does not exist yet" if each.is_absent else ", ".join(each.jobs) or "no job is allowed"
            self.log.info("%s: %s, %s", each.table, score, each.error or may)
        facts = {
            each.table: {"score": each.health and each.health["score"], "jobs": list(each.jobs), "error": each.error}
            for each in shown
        }
        context["ti"].xcom_push(
            key=TABLES_KEY, value={name: {k: v for k, v in f.items() if v is not None} for name, f in facts.items()}
        )
