"""Submission of one-time runs to Databricks by the DatabricksHook of Airflow's Databricks provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.submit.submitter import Application, RunStatus, Submitter
from lakecdc.contract.errors import SpecError
from lakecdc.contract.runtime import EXTENSIONS

_ENDS = ("TERMINATED", "SKIPPED", "INTERNAL_ERROR")


@dataclass(frozen=True)
class DatabricksSettings:
    """Settings of the connection: one of two clusters.

    :param new_cluster: the cluster of each run, as in the Jobs API: ``spark_version``, ``node_type_id``,
        ``num_workers`` and so on. Spark's settings and variables of the job are added to its own.
    :param existing_cluster_id: a running cluster, which must already have Spark's settings.
    :param libraries: further libraries of the run, as in the Jobs API.
    """

    new_cluster: dict[str, Any] = field(default_factory=dict)
    existing_cluster_id: str | None = None
    libraries: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if bool(self.new_cluster) == bool(self.existing_cluster_id):
            raise SpecError(
                "extra.spark of a Databricks connection needs new_cluster or existing_cluster_id, not both."
            )


class DatabricksRuns(Submitter):
    """One-time runs of the Jobs API."""

    settings = DatabricksSettings
    # Databricks installs wheels, and puts no zip on Python's path
    library_suffix = ".whl"

    def __init__(self, conn_id: str, settings: DatabricksSettings) -> None:
        from airflow.providers.databricks.hooks.databricks import DatabricksHook

        self._settings, self._databricks = settings, DatabricksHook(databricks_conn_id=conn_id)

    def preview(self, application: Application) -> dict[str, Any]:
        """Return the body of ``jobs/runs/submit``.

        :raises JobBadInputError: Databricks cannot provide what the application needs.
        """
        if application.archives:
            raise JobBadInputError(
                "Databricks does not support archives.",
                hint='Name Python packages in "libraries" of the connection\'s settings.',
            )
        wheels = [{"whl": file} for file in application.py_files]
        jars = [{"maven": {"coordinates": package}} for package in application.packages]
        task = {
            "task_key": "lakecdc",
            "spark_python_task": {"python_file": application.script, "parameters": list(application.args)},
            "libraries": [*wheels, *jars, *self._settings.libraries],
            **self._cluster(application),
        }
        return {"run_name": application.name, "tasks": [task]}

    def start(self, application: Application) -> str:
        return str(self._databricks.submit_run(self.preview(application)))

    def status(self, run_id: str) -> RunStatus:
        state = self._databricks.get_run(int(run_id))["state"]
        if state["life_cycle_state"] not in _ENDS:
            return RunStatus("running")
        if state.get("result_state") == "SUCCESS":
            return RunStatus("succeeded")
        outcome = state.get("result_state") or state["life_cycle_state"]
        return RunStatus("failed", f"{outcome}: {state.get('state_message', '')}")

    def stop(self, run_id: str | None) -> None:
        if run_id is not None:
            self._databricks.cancel_run(int(run_id))

    def link(self, run_id: str) -> str:
        """Return the address of the run's page."""
        return str(self._databricks.get_run_page_url(int(run_id)))

    def last_lines(self, run_id: str | None) -> list[str]:
        """Return the error of the run's task, and the last lines of its trace."""
        tasks = self._databricks.get_run(int(run_id)).get("tasks", []) if run_id else []
        if not tasks:
            return []
        output = self._databricks.get_run_output(tasks[-1]["run_id"])
        trace = str(output.get("error_trace") or "").splitlines()[-20:]
        return [*([str(output["error"])] if output.get("error") else []), *trace]

    def _cluster(self, application: Application) -> Mapping[str, Any]:
        if self._settings.existing_cluster_id:
            if application.conf or application.env:
                raise JobBadInputError("conf and env_vars have no effect on a running cluster of Databricks.")
            return {"existing_cluster_id": self._settings.existing_cluster_id}
        cluster = self._settings.new_cluster
        # the session starts before the job, which can no longer set this
        conf = {"spark.sql.extensions": EXTENSIONS, **cluster.get("spark_conf", {}), **application.conf}
        variables = {**cluster.get("spark_env_vars", {}), **application.env}
        return {"new_cluster": {**cluster, "spark_conf": conf, "spark_env_vars": variables}}
