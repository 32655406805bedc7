"""The operator that looks at the tables which governance works on, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.audit import record_health
from airflow_provider_lakecdc.documents.store import Documents
from airflow_provider_lakecdc.governance.assessment import Assessment, Steps, assess
from airflow_provider_lakecdc.governance.discovery import Wanted
from airflow_provider_lakecdc.governance.query_log import QueryLog
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.submit.submission import check_conf, is_true, table_list, typed_options
from lakecdc.contract.fields import parse
from lakecdc.metadata.policy import TablePolicy

if TYPE_CHECKING:
    from airflow.sdk import Context

#: XCom with the state of the tables that hurt most
TABLES_KEY = "tables"
_MOST_SHOWN = 50


class AssessTablesOperator(BaseOperator):
    """Looks at the metadata of tables: how healthy they are, what may be done to them, and what they need.

    It finds them by names and patterns, so that a table that is made tomorrow needs no change of a DAG. The return
    value is the URI of the assessment, which ``PlanOperator`` reads; the XCom ``tables`` has the state of up to fifty
    tables, the worst first.

    :param tables: ``namespace.name``, patterns of it with ``*`` and ``?``, and with ``!`` in front what is left out.
        (templated)
    :param fed: patterns of tables that ingestion feeds. (templated)
    :param policy: fields of ``lakecdc.metadata.policy.TablePolicy`` by pattern.
    :param steps: options of each job that the tables may need, in the order of work.
    :param beside: those of them that work on the tables beside as well, each with further ones.
    :param own: tables that a job is for alone, by job, with the options that each has.
    :param history: history table by target.
    :param only: look at these of the tables alone; empty is all of them. (templated)
    :param zone: time zone of the windows of policies.
    :param query_log: fields of ``airflow_provider_lakecdc.governance.query_log.QueryLog``: the table that tells how
        often others are read.
    :param is_dry: no job is to change anything, whatever policies prefer. (templated)
    :param strict_run_conf: refuse a DAG run whose ``conf`` has keys that are no params of the DAG.
    :param documents_uri: folder for the assessment; default: ``[lakecdc] documents_uri``. (templated)
    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``. (templated)
    :param kwargs: arguments of ``BaseOperator``.
    """

    template_fields: Sequence[str] = ("tables", "fed", "only", "is_dry", "documents_uri", "catalog_conn_id")
    ui_color = "#d9ecf2"

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
        self.is_dry = is_dry
        self.strict_run_conf = strict_run_conf
        self.documents_uri = documents_uri or settings.documents_uri()
        self.catalog_conn_id = catalog_conn_id or settings.catalog_conn_id()

    def execute(self, context: Context) -> str:
        """Look at the catalog and at each table's metadata.

        :return: URI of the assessment.
        """
        if self.strict_run_conf:
            check_conf(context["dag_run"].conf, list(context["dag"].params))
        found = self.assessed(table_list(self.only))
        self._tell(context, found)
        if settings.audit():
            # what a job has measured has its row from that job's operator
            measured = {each.table: each.health for each in found.tables if each.health and not each.measured_at}
            record_health(get_catalog(self.catalog_conn_id), datetime.fromisoformat(found.measured_at), measured)
        return Documents.of_try(self.documents_uri, context).write("assessment.json", found.to_json())

    def assessed(self, only: Sequence[str] = ()) -> Assessment:
        """The assessment itself, which needs no DAG run.

        :param only: look at these of the tables alone; empty is all of them.
        """
        policies = {pattern: parse(TablePolicy, each, f"policy.{pattern}") for pattern, each in self.policy.items()}
        query_log = parse(QueryLog, self.query_log, "query_log") if self.query_log else None
        return assess(
            get_catalog(self.catalog_conn_id),
            Wanted(tuple(self.tables), tuple(self.fed), policies, self.zone, query_log),
            Steps({job: typed_options(job, options) for job, options in self.steps.items()}, self.beside, self.own),
            history=self.history,
            only=only,
            is_dry=is_true(self.is_dry),
        )

    def _tell(self, context: Context, found: Assessment) -> None:
        for table, error in found.unseen.items():
            self.log.warning("%s cannot be looked at, so that nothing is removed from it: %s", table, error)
        shown = sorted(found.tables, key=lambda each: (each.health or {}).get("score", -1.0))[:_MOST_SHOWN]
        self.log.info("%d tables, the worst first:", len(found.tables))
        for each in shown:
            score = f"{each.health['score']:.0f}" if each.health else "-"
            may = "does not exist yet" if each.is_absent else ", ".join(each.jobs) or "nothing is allowed"
            self.log.info("%s: %s, %s", each.table, score, each.error or may)
        facts = {
            each.table: {"score": each.health and each.health["score"], "jobs": list(each.jobs), "error": each.error}
            for each in shown
        }
        context["ti"].xcom_push(
            key=TABLES_KEY, value={name: {k: v for k, v in f.items() if v is not None} for name, f in facts.items()}
        )
