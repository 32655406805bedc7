"""The operator that finds the tables which governance works on, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.discovery import Discovered, Wanted, discover
from airflow_provider_lakecdc.grouping import groups_of_tables, tables_beside
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from lakecdc.metadata.policy import TablePolicy

if TYPE_CHECKING:
    from airflow.sdk import Context


#: XCom with what may be done to each table
TABLES_KEY = "tables"


class DiscoverTablesOperator(BaseOperator):
    """Finds the tables that names and patterns stand for, and what may be done to each.

    The return value has an entry for each group of tables: by job the arguments of the task that works on the group. So
    a group is the same map index in all steps; a job that may be done to none of its tables has no ``tables`` there.
    The XCom ``tables`` says by table which ``jobs`` may be done to it, or the ``error`` for which nobody can tell.

    :param tables: ``namespace.name``, patterns of it with ``*`` and ``?``, and with ``!`` in front what is left out.
        (templated)
    :param fed: patterns of tables that ingestion feeds. (templated)
    :param policy: fields of ``lakecdc.metadata.policy.TablePolicy`` by pattern, for tables that nobody has named.
    :param jobs: jobs that are mapped over what is found.
    :param beside: those of them that work on the tables beside as well, each with further ones, which go with the first
        group.
    :param history: history table by target.
    :param tables_per_application: tables of a group; 0 puts all into one.
    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``. (templated)
    :param kwargs: arguments of ``BaseOperator``.
    """

    template_fields: Sequence[str] = ("tables", "fed", "catalog_conn_id")
    ui_color = "#d9ecf2"

    def __init__(
        self,
        *,
        tables: Sequence[str] = (),
        fed: Sequence[str] = (),
        policy: Mapping[str, Mapping[str, Any]] | None = None,
        jobs: Sequence[str] = (),
        beside: Mapping[str, Sequence[str]] | None = None,
        history: Mapping[str, str] | None = None,
        tables_per_application: int = 0,
        catalog_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = list(tables)
        self.fed = list(fed)
        self.policy = dict(policy or {})
        self.jobs = list(jobs)
        self.beside = {job: list(names) for job, names in (beside or {}).items()}
        self.history = dict(history or {})
        self.tables_per_application = tables_per_application
        self.catalog_conn_id = catalog_conn_id or settings.catalog_conn_id()

    def execute(self, context: Context) -> list[dict[str, dict[str, Any]]]:
        """Look at the catalog, and at the properties of tables that nobody has named.

        :return: arguments by group and job.
        """
        policies = {pattern: TablePolicy(tuple(each["allow"])) for pattern, each in self.policy.items()}
        wanted = Wanted(tuple(self.tables), tuple(self.fed), policies)
        found = discover(get_catalog(self.catalog_conn_id), wanted)
        allowed = sum(bool(each.jobs) for each in found.values())
        self.log.info("%d tables, of which something may be done to %d:", len(found), allowed)
        for name, each in found.items():
            self.log.info("%s: %s", name, each.error or ", ".join(sorted(each.jobs)) or "nothing is allowed")
        context["ti"].xcom_push(key=TABLES_KEY, value={name: each.facts() for name, each in found.items()})
        # one that nothing may be done to would only make groups larger
        governed = [name for name, each in found.items() if each.jobs]
        groups = groups_of_tables(governed, self.tables_per_application) if governed else []
        by_job = {job: self._arguments(job, groups, found) for job in self.jobs}
        return [{job: arguments[number] for job, arguments in by_job.items()} for number in range(len(groups))]

    def _arguments(
        self, job: str, groups: Sequence[Sequence[str]], found: Mapping[str, Discovered]
    ) -> list[dict[str, Any]]:
        tables = [[name for name in group if job in found[name].jobs] for group in groups]
        arguments: list[dict[str, Any]] = [{"tables": group} for group in tables]
        if job in self.beside:
            beside = tables_beside(tables, self.history, self.beside[job])
            arguments = [{**each, "side_tables": more} for each, more in zip(arguments, beside, strict=True)]
        return arguments
