"""Submission to Amazon EMR, EMR Serverless and Glue by the hooks of Airflow's Amazon provider."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.submit.submitter import Application, RunStatus, Submitter

# states of steps and runs that have not ended
_STEP_RUNS = ("PENDING", "RUNNING")
_GLUE_RUNS = ("STARTING", "RUNNING", "WAITING")
# states of failed runs of EMR Serverless
_FAILURES = ("FAILED", "CANCELLING", "CANCELLED")


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
        if status["State"] in _STEP_RUNS:
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
        """Return the address of Spark's page, which is valid for an hour."""
        return str(self._emr.conn.get_dashboard_for_job_run(**self._run(run_id))["url"])

    def _run(self, run_id: str) -> dict[str, str]:
        return {"applicationId": self._settings.application_id, "jobRunId": run_id}


def _quoted(text: str) -> str:
    # the service's examples have no quotes, so only values that need them get them
    return shlex.quote(text) if re.search(r"[\s'\"\\]", text) else text


@dataclass(frozen=True)
class GlueSettings:
    """Settings of the connection.

    :param job: the Glue job whose role, workers and Python packages jobs get; its script is not used.
    """

    job: str


class Glue(Submitter):
    """Runs of a Glue job with our script."""

    settings = GlueSettings

    def __init__(self, conn_id: str, settings: GlueSettings) -> None:
        from airflow.providers.amazon.aws.hooks.glue import GlueJobHook

        self._settings, self._glue = settings, GlueJobHook(aws_conn_id=conn_id, job_name=settings.job)

    def preview(self, application: Application) -> dict[str, Any]:
        """Return the arguments of ``StartJobRun``.

        :raises JobBadInputError: Glue cannot provide what the application needs.
        """
        if application.archives or application.env:
            raise JobBadInputError(
                "Glue supports neither archives nor env_vars.",
                hint="Name Python packages in the Glue job's --additional-python-modules.",
            )
        conf = {name: value for name, value in application.conf.items() if name != "spark.jars"}
        arguments = {
            "--scriptLocation": application.script,
            "--extra-py-files": ",".join(application.py_files),
            # Glue accepts one --conf, and passes its text on to spark-submit
            "--conf": " --conf ".join(f"{name}={value}" for name, value in conf.items()),
            "--extra-jars": application.conf.get("spark.jars", ""),
        }
        given = {name: value for name, value in arguments.items() if value}
        own = dict(zip(application.args[::2], application.args[1::2], strict=True))
        return {"JobName": self._settings.job, "Arguments": {**given, **own}}

    def start(self, application: Application) -> str:
        return str(self._glue.conn.start_job_run(**self.preview(application))["JobRunId"])

    def status(self, run_id: str) -> RunStatus:
        run = self._glue.conn.get_job_run(JobName=self._settings.job, RunId=run_id)["JobRun"]
        if run["JobRunState"] in _GLUE_RUNS:
            return RunStatus("running")
        if run["JobRunState"] == "SUCCEEDED":
            return RunStatus("succeeded")
        return RunStatus("failed", f"{run['JobRunState']}: {run.get('ErrorMessage', '')}")

    def stop(self, run_id: str | None) -> None:
        if run_id is not None:
            self._glue.conn.batch_stop_job_run(JobName=self._settings.job, JobRunIds=[run_id])
