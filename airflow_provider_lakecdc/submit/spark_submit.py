"""What is used of the inside of Airflow's Spark provider; no other module touches its private members.

``setup.cfg`` bounds the provider's version for the sake of this module, and its test names each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_lakecdc.submit.process_output import JobOutput

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context


def knows_kubernetes() -> bool:
    """Whether Airflow's provider of Kubernetes is installed, without which its Spark provider submits nothing there."""
    from airflow.providers.apache.spark.hooks import spark_submit

    return getattr(spark_submit, "kube_client", None) is not None


class SubmitError(Exception):
    """spark-submit failed: how it ended and what it said, without the command and Spark's chatter.

    :param message: in one line.
    :param lines: the last lines of the output that are not Spark's chatter.
    """

    def __init__(self, message: str, lines: list[str]) -> None:
        super().__init__("\n".join([message, *(f"  {line}" for line in lines)]))


class SubmitOperator(SparkSubmitOperator):
    """A ``SparkSubmitOperator`` that folds Spark's lines in the task's log and says how spark-submit has ended."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._output = JobOutput()

    @property
    def spark_conn_id(self) -> str:
        """Connection that jobs are submitted to."""
        return self._conn_id

    @property
    def deploy_mode(self) -> str | None:
        """Mode that was asked for, before the connection's."""
        return self._deploy_mode

    @property
    def stored_keys(self) -> tuple[str, ...]:
        """Keys under which the id of a job is kept for the try that takes it over."""
        return self.external_id_key, self._K8S_DRIVER_STATUS_KEY

    def use_binary(self, path: str | None) -> None:
        """Submit with this command unless another one was asked for."""
        self._spark_binary = self._spark_binary or path

    def submit_command(self) -> list[str]:
        """The command that would be run."""
        command: list[str] = self._get_hook()._build_spark_submit_command(self.application)
        return command

    def submit_and_wait(self, context: Context, listeners: Mapping[str, Callable[[str], None]]) -> None:
        """Run spark-submit with the arguments as they are now.

        :param listeners: to the job's log, as :class:`JobOutput` has them.
        :raises SubmitError: it failed, or the application that it started.
        """
        # the hook of an earlier call holds that call's arguments and output
        self._hook, self._output = None, JobOutput(listeners)
        try:
            super().execute(context)
        except BrokenPipeError:
            # Airflow's process above this one is gone, which says nothing of spark-submit
            raise
        except Exception as error:
            # the command and all of the output, which its message repeats, stand in the log
            raise SubmitError(self._ending(error), self._output.last_lines) from None

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        process = hook._process_spark_submit_log

        def fold(lines: Iterator[Any]) -> None:
            process(self._output.folded(lines))

        # the provider makes the hook itself and has no place for another class
        hook._process_spark_submit_log = fold  # type: ignore[assignment,method-assign]
        return hook

    def _ending(self, error: Exception) -> str:
        process = self._hook._submit_sp if self._hook else None
        code = process.poll() if process else None
        if code:
            return f"spark-submit ended with exit code {code}."
        # a driver on the cluster, or a setting that the provider refuses
        self.log.error("The submission has failed.", exc_info=error)
        return str(error).splitlines()[0] if str(error) else type(error).__name__
