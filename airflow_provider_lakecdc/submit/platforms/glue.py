"""Submission to AWS Glue by the GlueJobHook of Airflow's Amazon provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.submit.submitter import Application, RunStatus, Submitter

_RUNNING = ("STARTING", "RUNNING", "STOPPING", "WAITING")


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

        :raises JobBadInputError: Glue has no way to give the application what it needs.
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
        if run["JobRunState"] in _RUNNING:
            return RunStatus("running")
        if run["JobRunState"] == "SUCCEEDED":
            return RunStatus("succeeded")
        return RunStatus("failed", f"{run['JobRunState']}: {run.get('ErrorMessage', '')}")

    def stop(self, run_id: str | None) -> None:
        if run_id is not None:
            self._glue.conn.batch_stop_job_run(JobName=self._settings.job, JobRunIds=[run_id])
