"""All uses of private members of Airflow's Spark provider.

``setup.cfg`` bounds the provider's version because of this module, and its test names each member.
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
    """Check whether Airflow's Kubernetes provider is installed, which the Spark provider needs to submit there."""
    from airflow.providers.apache.spark.hooks import spark_submit

    return getattr(spark_submit, "kube_client", None) is not None


class SubmitError(Exception):
    """A failure of spark-submit: its ending and last output, without the command and Spark's chatter."""

    def __init__(self, message: str, lines: list[str]) -> None:
        super().__init__("\n".join([message, *(f"  {line}" for line in lines)]))


class SubmitOperator(SparkSubmitOperator):
    """A ``SparkSubmitOperator`` that folds Spark's log lines and reports how spark-submit ended."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._output = JobOutput()

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
        """Return the keys of the stored job id, for the try that resumes the job."""
        return self.external_id_key, self._K8S_DRIVER_STATUS_KEY

    def use_binary(self, path: str | None) -> None:
        """Use this submit command unless another is set."""
        self._spark_binary = self._spark_binary or path

    def submit_command(self) -> list[str]:
        """Return the command that would run."""
        command: list[str] = self._get_hook()._build_spark_submit_command(self.application)
        return command

    def submit_and_wait(self, context: Context, listeners: Mapping[str, Callable[[str], None]]) -> None:
        """Run spark-submit with the current arguments, and pass log messages on to listeners.

        :raises SubmitError: spark-submit or its application failed.
        """
        # the hook of an earlier call has that call's arguments and output
        self._hook, self._output = None, JobOutput(listeners)
        try:
            super().execute(context)
        except BrokenPipeError:
            # Airflow's parent process is gone; spark-submit did not fail
            raise
        except Exception as error:
            # the error's message repeats the command and all output, which are in the log already
            raise SubmitError(self._ending(error), self._output.last_lines) from None

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        process = hook._process_spark_submit_log

        def fold(lines: Iterator[Any]) -> None:
            process(self._output.fold(lines))

        # the provider creates the hook itself, without a setting for its class
        hook._process_spark_submit_log = fold  # type: ignore[assignment,method-assign]
        return hook

    def _ending(self, error: Exception) -> str:
        process = self._hook._submit_sp if self._hook else None
        code = process.poll() if process else None
        if code:
            return f"spark-submit ended with exit code {code}."
        # a driver on the cluster, or a setting that the provider rejects
        self.log.error("The submission failed.", exc_info=error)
        return str(error).splitlines()[0] if str(error) else type(error).__name__
