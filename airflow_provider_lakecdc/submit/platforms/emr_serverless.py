"""Submission to Amazon EMR Serverless by the EmrServerlessHook of Airflow's Amazon provider."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecdc.submit.submitter import Application, RunStatus, Submitter

_FAILURES = ("FAILED", "CANCELLING", "CANCELLED")


@dataclass(frozen=True)
class EmrServerlessSettings:
    """Settings of the connection.

    :param application_id: the EMR Serverless application.
    :param role: ARN of the role that jobs run as.
    :param log_uri: S3 folder of the drivers' logs; default: only the platform keeps them.
    """

    application_id: str
    role: str
    log_uri: str | None = None


class EmrServerless(Submitter):
    """EMR Serverless."""

    settings = EmrServerlessSettings

    def __init__(self, conn_id: str, settings: EmrServerlessSettings) -> None:
        from airflow.providers.amazon.aws.hooks.emr import EmrServerlessHook

        self._settings, self._emr = settings, EmrServerlessHook(aws_conn_id=conn_id)

    def preview(self, application: Application) -> dict[str, Any]:
        """Return the arguments of ``StartJobRun``."""
        settings = application.settings("spark.emr-serverless.driverEnv.").items()
        submit = {
            "entryPoint": application.script,
            "entryPointArguments": list(application.args),
            "sparkSubmitParameters": " ".join(f"--conf {_quoted(f'{name}={value}')}" for name, value in settings),
        }
        request: dict[str, Any] = {
            "applicationId": self._settings.application_id,
            "executionRoleArn": self._settings.role,
            "name": application.name,
            "jobDriver": {"sparkSubmit": submit},
        }
        if self._settings.log_uri:
            monitoring = {"s3MonitoringConfiguration": {"logUri": self._settings.log_uri}}
            request["configurationOverrides"] = {"monitoringConfiguration": monitoring}
        return request

    def start(self, application: Application) -> str:
        return str(self._emr.conn.start_job_run(**self.preview(application))["jobRunId"])

    def status(self, run_id: str) -> RunStatus:
        run = self._emr.conn.get_job_run(**self._run(run_id))["jobRun"]
        if run["state"] in _FAILURES:
            return RunStatus("failed", f"{run['state']}: {run.get('stateDetails', '')}")
        return RunStatus("succeeded" if run["state"] == "SUCCESS" else "running")

    def stop(self, run_id: str | None) -> None:
        if run_id is not None:
            self._emr.conn.cancel_job_run(**self._run(run_id))

    def link(self, run_id: str) -> str:
        """Return the address of Spark's page, which is good for an hour."""
        return str(self._emr.conn.get_dashboard_for_job_run(**self._run(run_id))["url"])

    def _run(self, run_id: str) -> dict[str, str]:
        return {"applicationId": self._settings.application_id, "jobRunId": run_id}


def _quoted(text: str) -> str:
    # the service's examples have no quotes, so only what needs them gets them
    return shlex.quote(text) if re.search(r"[\s'\"\\]", text) else text
