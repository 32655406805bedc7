"""Submission of steps to a running Amazon EMR cluster by the EmrHook of Airflow's Amazon provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecdc.submit.submitter import Application, RunStatus, Submitter

_RUNNING = ("PENDING", "RUNNING", "CANCEL_PENDING")


@dataclass(frozen=True)
class EmrSettings:
    """Settings of the connection.

    :param cluster_id: the running cluster.
    :param role: ARN of the runtime role of steps; default: the cluster's.
    """

    cluster_id: str
    role: str | None = None


class EmrSteps(Submitter):
    """Steps of an EMR cluster: spark-submit in cluster mode on its YARN."""

    settings = EmrSettings

    def __init__(self, conn_id: str, settings: EmrSettings) -> None:
        from airflow.providers.amazon.aws.hooks.emr import EmrHook

        self._settings, self._emr = settings, EmrHook(emr_conn_id=None, aws_conn_id=conn_id)

    def preview(self, application: Application) -> dict[str, Any]:
        """Return the step."""
        settings = application.settings("spark.yarn.appMasterEnv.")
        conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        submit = ["spark-submit", "--deploy-mode", "cluster", "--name", application.name, *conf]
        return {
            "Name": application.name,
            # a failed job must not stop other work on the cluster
            "ActionOnFailure": "CONTINUE",
            "HadoopJarStep": {"Jar": "command-runner.jar", "Args": [*submit, application.script, *application.args]},
        }

    def start(self, application: Application) -> str:
        (step_id,) = self._emr.add_job_flow_steps(
            self._settings.cluster_id, [self.preview(application)], execution_role_arn=self._settings.role
        )
        return str(step_id)

    def status(self, run_id: str) -> RunStatus:
        cluster = self._settings.cluster_id
        status = self._emr.conn.describe_step(ClusterId=cluster, StepId=run_id)["Step"]["Status"]
        if status["State"] in _RUNNING:
            return RunStatus("running")
        if status["State"] == "COMPLETED":
            return RunStatus("succeeded")
        details = status.get("FailureDetails") or status.get("StateChangeReason") or {}
        reasons = [str(details[key]) for key in ("Reason", "Message", "LogFile") if details.get(key)]
        return RunStatus("failed", ": ".join([status["State"], *reasons]))

    def stop(self, run_id: str | None) -> None:
        """Cancel the step; EMR kills its process."""
        if run_id is not None:
            self._emr.conn.cancel_steps(
                ClusterId=self._settings.cluster_id,
                StepIds=[run_id],
                StepCancellationOption="TERMINATE_PROCESS",
            )
