"""Submission to Apache Livy by the LivyHook of Airflow's Livy provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow.sdk.exceptions import AirflowException

from airflow_provider_lakecdc.submit.submitter import Application, RunStatus, Submitter

_FAILURES = ("dead", "error", "killed")
_LAST_LINES = 200


@dataclass(frozen=True)
class LivySettings:
    """No settings: Airflow's hook sends everything in a Livy connection's extra as HTTP headers."""


class LivyBatches(Submitter):
    """Batches of a Livy server."""

    settings = LivySettings

    def __init__(self, conn_id: str, settings: LivySettings) -> None:
        from airflow.providers.apache.livy.hooks.livy import LivyHook

        self._livy = LivyHook(livy_conn_id=conn_id)

    def preview(self, application: Application) -> dict[str, Any]:
        """Return the arguments of ``LivyHook.post_batch`` without the name."""
        return {
            "file": application.script,
            "args": list(application.args),
            # Livy has no fields for packages and variables, but passes on Spark's settings
            "conf": application.settings("spark.yarn.appMasterEnv."),
        }

    def start(self, application: Application) -> str:
        """Start a batch under a unique name, because Livy refuses the names of batches that it remembers."""
        return str(self._livy.post_batch(**self.preview(application), name=application.unique_name()))

    def status(self, run_id: str) -> RunStatus:
        try:
            batch = self._livy.get_batch(run_id)
        except AirflowException as error:
            if "not found" not in str(error):
                raise
            return RunStatus("failed", "Livy no longer has the batch: it was deleted, or ended long ago")
        if batch["state"] in _FAILURES:
            return RunStatus("failed", f"{batch['state']}, Spark's application {batch.get('appId') or 'has no id'}")
        return RunStatus("succeeded" if batch["state"] == "success" else "running")

    def stop(self, run_id: str | None) -> None:
        """Delete the batch, so that Livy kills its application."""
        if run_id is not None:
            self._livy.delete_batch(run_id)

    def link(self, run_id: str) -> str | None:
        """Return the address of Spark's page, as soon as Livy knows it."""
        return (self._livy.get_batch(run_id).get("appInfo") or {}).get("sparkUiUrl")

    def last_lines(self, run_id: str | None) -> list[str]:
        """Return the last lines that Livy has of spark-submit."""
        if run_id is None:
            return []
        total = self._livy.get_batch_logs(run_id, 0, 1)["total"]
        lines = self._livy.get_batch_logs(run_id, max(0, total - _LAST_LINES), _LAST_LINES)["log"]
        return [str(line).rstrip() for line in lines]
