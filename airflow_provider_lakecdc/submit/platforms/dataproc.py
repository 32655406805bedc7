"""Submission of Serverless batches to Google Dataproc by the DataprocHook of Airflow's Google provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider_lakecdc.submit.submitter import Application, RunStatus, Submitter

_RUNNING = ("STATE_UNSPECIFIED", "PENDING", "RUNNING")
_CONSOLE = "https://console.cloud.google.com/dataproc/batches"


@dataclass(frozen=True)
class DataprocSettings:
    """Settings of the connection.

    :param project: the project's id.
    :param region: such as ``europe-west1``.
    :param version: version of the runtime, such as ``3.0``.
    :param container_image: image of drivers and executors; default: the runtime's.
    :param environment: the batch's ``environment_config``: network, account of the service and so on.
    """

    project: str
    region: str
    version: str | None = None
    container_image: str | None = None
    environment: dict[str, Any] = field(default_factory=dict)


class DataprocBatches(Submitter):
    """Serverless batches."""

    settings = DataprocSettings

    def __init__(self, conn_id: str, settings: DataprocSettings) -> None:
        from airflow.providers.google.cloud.hooks.dataproc import DataprocHook

        self._settings, self._dataproc = settings, DataprocHook(gcp_conn_id=conn_id)
        self._place = {"region": settings.region, "project_id": settings.project}

    def preview(self, application: Application) -> dict[str, Any]:
        """Return the batch."""
        runtime = {"version": self._settings.version, "container_image": self._settings.container_image}
        return {
            "pyspark_batch": {"main_python_file_uri": application.script, "args": list(application.args)},
            "runtime_config": {
                **{name: value for name, value in runtime.items() if value},
                "properties": application.settings("spark.dataproc.driverEnv."),
            },
            "environment_config": self._settings.environment,
        }

    def start(self, application: Application) -> str:
        batch_id = application.unique_name()
        self._dataproc.create_batch(batch=self.preview(application), batch_id=batch_id, **self._place)
        return batch_id

    def status(self, run_id: str) -> RunStatus:
        batch = self._dataproc.get_batch(batch_id=run_id, **self._place)
        if batch.state.name in _RUNNING:
            return RunStatus("running")
        if batch.state.name == "SUCCEEDED":
            return RunStatus("succeeded")
        return RunStatus("failed", f"{batch.state.name}: {batch.state_message}")

    def stop(self, run_id: str | None) -> None:
        """Cancel the batch's operation: a batch that runs cannot be deleted."""
        if run_id is not None:
            operation = self._dataproc.get_batch(batch_id=run_id, **self._place).operation
            self._dataproc.get_operations_client(self._settings.region).cancel_operation(name=operation)

    def link(self, run_id: str) -> str:
        """Return the address of the batch's page."""
        return f"{_CONSOLE}/{self._settings.region}/{run_id}?project={self._settings.project}"
