"""Submission by spark-submit, and all uses of private members of Airflow's Spark provider.

``setup.cfg`` bounds the provider's version because of this module, and its test names each member.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.openlineage.utils.spark import (
    inject_parent_job_information_into_spark_properties,
    inject_transport_information_into_spark_properties,
)
from airflow.sdk import conf

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.submit.job_run import SPARK_UI_KEY
from airflow_provider_lakecdc.submit.platforms import RunEndTrigger
from airflow_provider_lakecdc.submit.submitter import Application, RunStatus, Submitter, refuse_failed

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context
    from pydantic import JsonValue

log = logging.getLogger(__name__)

OPEN, CLOSE = "::group::Spark", "::endgroup::"
_MOST_LINES = 20
# log line formats of Spark and of lakecdc's jobs
_SPARK = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>[A-Z]+) ")
_OURS = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ (?P<level>[A-Z]+) ")
_LAKECDC = re.compile(rf"{_OURS.pattern}lakecdc[\w.]*: (?P<message>.*)", re.DOTALL)
_TROUBLE = re.compile(
    r"^(Traceback \(most recent call last\)|Exception in thread|([\w$]+\.)*\w+(Error|Exception)\b)|\bKilled\b"
)
_CHATTER = ("TRACE", "DEBUG", "INFO")
# output of spark-submit before logging starts, also after a warning: fetched jars
_FETCHING = re.compile(r":: |Ivy Default Cache set to|The jars for the packages stored in|Using Spark's default log4j")


def knows_kubernetes() -> bool:
    """Check whether Airflow's Kubernetes provider is installed, which the Spark provider needs to submit there."""
    from airflow.providers.apache.spark.hooks import spark_submit

    return getattr(spark_submit, "kube_client", None) is not None


class SubmitError(Exception):
    """A failure of a submission: its ending and last output, without the command and Spark's chatter."""

    def __init__(self, message: str, lines: list[str]) -> None:
        super().__init__("\n".join([message, *(f"  {line}" for line in lines)]))


class SubmitOperator(SparkSubmitOperator):
    """An operator with the arguments of a ``SparkSubmitOperator`` that submits by a :class:`Submitter`."""

    #: folder of specs and reports
    documents_uri: str

    def __init__(self, *, deferrable: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = deferrable
        #: the trigger's event, after a wait in the triggerer
        self.ended: Mapping[str, str] | None = None
        self.job_output = JobOutput()
        self.submitter: Submitter | None = None
        self.submitted: Application | None = None
        self.run_id: str | None = None
        self._link: str | None = None

    @property
    def spark_conn_id(self) -> str:
        """Return the connection to submit jobs to."""
        return self._conn_id

    @property
    def deploy_mode(self) -> str | None:
        """Return the operator's mode, which overrides the connection's."""
        return self._deploy_mode

    @property
    def stored_keys(self) -> tuple[str, ...]:
        """Return the keys of the stored run id, for the try that resumes the run."""
        return self.external_id_key, self._K8S_DRIVER_STATUS_KEY

    @property
    def archives(self) -> str | None:
        """Return the packed Python environments."""
        return self._archives

    def with_lineage(self, context: Context | None) -> dict[str, Any]:
        """Return ``conf`` with the settings that tie Spark's lineage to the task, if OpenLineage is set up so."""
        conf = dict(self.conf or {})
        if context and self._openlineage_inject_parent_job_info:
            conf = inject_parent_job_information_into_spark_properties(conf, context)
        if context and self._openlineage_inject_transport_info:
            conf = inject_transport_information_into_spark_properties(conf, context)
        return conf

    def spark_settings(self, context: Context | None) -> dict[str, str]:
        """Return ``conf`` and the settings that spark-submit has arguments for."""
        arguments = {
            "spark.driver.memory": self._driver_memory,
            "spark.executor.memory": self._executor_memory,
            "spark.executor.cores": self._executor_cores,
            "spark.executor.instances": self._num_executors,
            "spark.cores.max": self._total_executor_cores,
            "spark.jars.repositories": self._repositories,
            "spark.jars.excludes": self.exclude_packages,
            "spark.jars": self.jars,
            "spark.files": self.files,
            "spark.driver.extraClassPath": self.driver_class_path,
        }
        given = {name: value for name, value in arguments.items() if value is not None}
        return {name: str(value) for name, value in {**self.with_lineage(context), **given}.items()}

    def refuse_spark_submits_own(self, platform: str) -> None:
        """Refuse arguments that only spark-submit supports.

        :raises JobBadInputError: one is given.
        """
        own = {
            "keytab": self.keytab,
            "principal": self.principal,
            "proxy_user": self.proxy_user,
            "properties_file": self.properties_file,
            "yarn_queue": self._yarn_queue,
            "post_submit_commands": self.post_submit_commands,
            "spark_binary": self._spark_binary,
        }
        if given := [name for name, value in own.items() if value]:
            raise JobBadInputError(f"{platform} does not support {given[0]}, an argument of spark-submit.")

    def submit_and_wait(
        self,
        context: Context,
        submitter: Submitter,
        application: Application,
        listeners: Mapping[str, Callable[[str], None]],
    ) -> None:
        """Submit an application, or take over the run of an earlier try, and wait until it ends.

        :param listeners: receive log messages that reach this worker, by their prefix.
        :raises SubmitError: the submission or its run failed.
        """
        self.submitter, self.submitted, self.run_id = submitter, application, None
        self.job_output = JobOutput(listeners)
        try:
            self.execute_resumable(context)
        except BrokenPipeError:
            # Airflow's parent process is gone; the submission did not fail
            raise
        except Exception as error:
            # the error's message may repeat the command and all output, which are in the log already
            raise SubmitError(submitter.describe(error), self._last_lines()) from None

    def submit_job(self, context: Context) -> str | None:
        """Start the application."""
        assert self.submitter is not None and self.submitted is not None
        if self.ended is not None:
            raise RuntimeError("The id of the run that the task has waited for is no longer stored.")
        self.run_id = self.submitter.start(self.submitted)
        return self.run_id

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return the status of a run."""
        assert self.submitter is not None
        if self.ended is None:
            return self.submitter.status(str(external_id)).state
        self.run_id, self._link = str(external_id), None
        # some platforms have none yet when a run starts
        self._push_link(context)
        refuse_failed(self.run_id, self.ended["state"], self.ended["reason"])
        return "succeeded"

    def is_job_active(self, status: str) -> bool:
        """Check whether a run is under way."""
        return status == "running"

    def is_job_succeeded(self, status: str) -> bool:
        """Check whether a run succeeded."""
        return status == "succeeded"

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> None:
        """Wait until a run ends, in the triggerer if it can; one without an id has ended."""
        if external_id is None:
            return
        assert self.submitter is not None
        self.run_id, self._link = str(external_id), None
        # after the wait the run's id comes from the store
        is_stored = self.durable and context.get("task_state_store") is not None
        if not (self.deferrable and self.submitter.is_remote and is_stored):
            self.submitter.wait(self.run_id, lambda: self._push_link(context))
            return
        status = self.submitter.poll(self.run_id)
        self._push_link(context)
        if status.state == "running":
            trigger = RunEndTrigger(conn_id=self.spark_conn_id, run_id=self.run_id)
            arguments, timeout = self.resume_arguments(), self.execution_timeout
            self.defer(trigger=trigger, method_name="resume", kwargs=arguments, timeout=timeout)
        refuse_failed(self.run_id, status.state, status.reason)

    def resume_arguments(self) -> dict[str, Any]:
        """Return what the task needs after a wait in the triggerer, as JSON; subclasses implement it."""
        return {}

    def on_kill(self) -> None:
        """Stop what was submitted."""
        if self.submitter is not None:
            self.submitter.stop(self.run_id)

    def _push_link(self, context: Context) -> None:
        """Push the address of the run's page once it is known; a platform that has none yet is asked again."""
        assert self.submitter is not None and self.run_id is not None
        if self._link is not None:
            return
        try:
            self._link = self.submitter.link(self.run_id)
        except Exception as error:
            log.info("Run %s has no page yet: %s", self.run_id, error)
        if self._link:
            log.info("Run %s: %s", self.run_id, self._link)
            context["ti"].xcom_push(key=SPARK_UI_KEY, value=self._link)

    def _last_lines(self) -> list[str]:
        """Return the last lines of the output without Spark's chatter.

        There are none if the platform does not answer; the report must still be read.
        """
        assert self.submitter is not None
        output = JobOutput()
        try:
            deque(output.fold(self.submitter.last_lines(self.run_id)), maxlen=0)
            return output.last_lines
        except Exception as error:
            log.warning("Cannot read the last lines of run %s: %s", self.run_id, error)
            return []

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        process = hook._process_spark_submit_log

        def fold(lines: Iterator[Any]) -> None:
            process(without_warnings(self.job_output.fold(lines)))

        # the provider creates the hook itself, without a setting for its class
        hook._process_spark_submit_log = fold  # type: ignore[assignment,method-assign]
        return hook


class SparkSubmit(Submitter):
    """spark-submit, with a local master, a standalone cluster, YARN or Kubernetes.

    In client mode the application runs below this worker's process; in cluster mode the provider watches it.

    :param operator: has the arguments of spark-submit other than the application's.
    :param binary: the command, unless the operator names another; None for the connection's.
    :param context: of the running task; None for a preview.
    """

    is_remote = False

    def __init__(self, operator: SubmitOperator, binary: str | None, context: Context | None) -> None:
        self._operator, self._binary = operator, binary
        self._context: Any = context or {}
        # the hook of an earlier call has that call's arguments and output
        operator._hook = None

    def preview(self, application: Application) -> list[str]:
        """Return the command."""
        command: list[str] = self._hook_for(application)._build_spark_submit_command(application.script)
        return command

    def start(self, application: Application) -> str | None:
        """Run spark-submit; return the run's id if the driver is on the cluster and is watched from here."""
        operator = self._operator
        operator.conf = operator.with_lineage(self._context)
        operator._hook = hook = self._hook_for(application)
        if hook._track_driver_via_k8s_api:
            hook._validate_track_driver_via_k8s_api_config()
        watches_yarn = hook._is_yarn_cluster_mode and hook._yarn_track_via_rm_api
        if hook._is_yarn_cluster_mode and operator.durable and not watches_yarn:
            raise ValueError("YARN in cluster mode needs yarn_track_via_rm_api=True, or durable=False.")
        if hook._should_track_driver_status or hook._should_track_driver_via_k8s_api() or watches_yarn:
            return SparkSubmitOperator.submit_job(operator, self._context)
        hook.submit(application.script)
        return None

    def status(self, run_id: str) -> RunStatus:
        """Return the driver's status."""
        status = SparkSubmitOperator.get_job_status(self._operator, run_id, self._context)
        if SparkSubmitOperator.is_job_active(self._operator, status):
            return RunStatus("running")
        return RunStatus(
            "succeeded" if SparkSubmitOperator.is_job_succeeded(self._operator, status) else "failed", status
        )

    def wait(self, run_id: str, after_poll: Callable[[], None]) -> None:
        """Wait as the provider does, which also removes the driver."""
        SparkSubmitOperator.poll_until_complete(self._operator, run_id, self._context)

    def stop(self, run_id: str | None) -> None:
        """End spark-submit's process, and the driver on the cluster."""
        SparkSubmitOperator.on_kill(self._operator)

    def last_lines(self, run_id: str | None) -> list[str]:
        """Return the last lines of spark-submit."""
        return self._operator.job_output.last_lines

    def describe(self, error: Exception) -> str:
        """Return spark-submit's exit code, if it has one."""
        hook = self._operator._hook
        process = hook._submit_sp if hook else None
        code = process.poll() if process else None
        if code:
            return f"spark-submit ended with exit code {code}."
        # a driver on the cluster, or a setting that the provider rejects
        log.error("The submission failed.", exc_info=error)
        return super().describe(error)

    def _hook_for(self, application: Application) -> SparkSubmitHook:
        """Return a hook for the application."""
        operator = self._operator
        operator.application, operator.application_args = application.script, list(application.args)
        operator.py_files, operator.packages = ",".join(application.py_files), ",".join(application.packages)
        operator._spark_binary = operator._spark_binary or self._binary
        return operator._get_hook()


class JobOutput:
    """Lines that one job has printed.

    Spark's lines up to INFO and all output before the job's first line are chatter; a line without a level belongs to
    the one before it.

    :param listeners: by prefix of a log message; called with the rest of the message.
    """

    def __init__(self, listeners: Mapping[str, Callable[[str], None]] | None = None) -> None:
        self._listeners = listeners or {}
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._all: deque[str] = deque(maxlen=_MOST_LINES)

    @property
    def last_lines(self) -> list[str]:
        """Return the last lines without chatter, or the last lines if there is only chatter."""
        return list(self._lines or self._all)

    def fold(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines as they arrive, with marks around chatter that Airflow's web page folds."""
        chatter, is_open = True, False
        for line in lines:
            chatter = _is_chatter(line.strip(), chatter)
            if chatter != is_open:
                yield OPEN if chatter else CLOSE
                is_open = chatter
            self._all.append(line.rstrip())
            if not chatter:
                self._lines.append(line.rstrip())
                self._notify(line.rstrip())
            yield line
        if is_open:
            yield CLOSE

    def _notify(self, line: str) -> None:
        match = _LAKECDC.fullmatch(line)
        for prefix, listener in self._listeners.items() if match else ():
            if match and match["message"].startswith(prefix):
                listener(match["message"].removeprefix(prefix))


def without_warnings(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that Airflow's provider logs at INFO; log the warnings and errors of lakecdc's jobs as such."""
    for line in lines:
        match = _LAKECDC.match(line)
        level = logging.getLevelNamesMapping().get(match["level"], 0) if match else 0
        if level >= logging.WARNING:
            log.log(level, "%s", line.rstrip())
        else:
            yield line


def _is_chatter(line: str, before: bool) -> bool:
    if match := _SPARK.match(line):
        return match["level"] in _CHATTER
    if _OURS.match(line) or _TROUBLE.search(line):
        return False
    return before or _FETCHING.match(line) is not None
