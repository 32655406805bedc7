"""Applications for Spark, and the interface of the platforms that run them."""

from __future__ import annotations

import re
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tenacity import Retrying, stop_after_attempt, wait_fixed

from airflow_provider_lakecdc.exceptions import JobBadInputError
from lakecdc.contract.secrets import is_secret

#: failed requests for the status of a run in a row after which the task gives up
_MOST_ATTEMPTS = 5


@dataclass(frozen=True)
class Application:
    """A job in the form that is submitted.

    :param script: the job's script: a URI, or a path on this worker if Spark runs or uploads it from here.
    :param args: URIs of spec and report; never a secret.
    :param py_files: Python files besides the script, the job library among them.
    :param archives: packed Python environments, each with ``#`` and the folder's name.
    :param packages: Maven coordinates.
    :param conf: Spark settings; never a secret.
    :param env: environment variables of driver and executors; never a secret.
    """

    name: str
    script: str
    args: tuple[str, ...]
    py_files: tuple[str, ...]
    archives: tuple[str, ...]
    packages: tuple[str, ...]
    conf: Mapping[str, str]
    env: Mapping[str, str]

    def unique_name(self) -> str:
        """Return a name that no other run has, of at most 62 lower-case letters, digits and hyphens."""
        return f"{re.sub('[^a-z0-9]+', '-', self.name.lower())[:25].strip('-')}-{uuid.uuid4()}"

    def refuse_secrets(self) -> None:
        """Refuse settings and variables that are secret: a platform shows them.

        :raises JobBadInputError: there is one.
        """
        for place, values in (("conf", self.conf), ("env_vars", self.env)):
            if secret := next((name for name, value in values.items() if is_secret(name, value)), None):
                raise JobBadInputError(
                    f"{secret} in {place} is a secret, which the platform would show.",
                    hint="Provide it on the platform: by the role of the job, or by its store of secrets.",
                )

    def settings(self, driver_env: str) -> dict[str, str]:
        """Return the whole application as Spark settings, except script and arguments.

        :param driver_env: prefix of the settings that give the driver its environment variables.
        """
        files = {
            "spark.submit.pyFiles": self.py_files,
            "spark.archives": self.archives,
            "spark.jars.packages": self.packages,
        }
        variables = {
            f"{prefix}{name}": value
            for name, value in self.env.items()
            for prefix in (driver_env, "spark.executorEnv.")
        }
        return {**self.conf, **{name: ",".join(values) for name, values in files.items() if values}, **variables}


@dataclass(frozen=True)
class RunStatus:
    """The status of a run.

    :param reason: the platform's reason if the run failed.
    """

    state: Literal["running", "succeeded", "failed"]
    reason: str = ""


class Submitter(ABC):
    """Starts applications, watches them and stops them, by the id of their run, which a later try knows too."""

    #: suffix of the job library's file
    library_suffix: ClassVar[str] = ".zip"
    #: seconds between two requests for the status of a run
    poll_seconds: ClassVar[float] = 15.0
    #: whether a run goes on, and can be asked for, without this worker
    is_remote: ClassVar[bool] = True

    @abstractmethod
    def preview(self, application: Application) -> Any:
        """Return what :meth:`start` would send, without sending it."""

    @abstractmethod
    def start(self, application: Application) -> str | None:
        """Start the application and return its run's id; None if it ran in a process of this worker and has ended."""

    @abstractmethod
    def status(self, run_id: str) -> RunStatus:
        """Return the status of a run."""

    @abstractmethod
    def stop(self, run_id: str | None) -> None:
        """Stop the run; None if it has no id yet."""

    def link(self, run_id: str) -> str | None:
        """Return the address of the run's page, or None if it has none yet."""
        return None

    def last_lines(self, run_id: str | None) -> list[str]:
        """Return the last lines of the run's output, as far as the platform provides them."""
        return []

    def describe(self, error: Exception) -> str:
        """Describe a failure in one line."""
        return str(error).splitlines()[0] if str(error) else type(error).__name__

    def wait(self, run_id: str, after_poll: Callable[[], None]) -> None:
        """Wait until the run ends.

        :param after_poll: called after each request for its status.
        :raises RuntimeError: it failed.
        """
        while True:
            status = self.poll(run_id)
            after_poll()
            if status.state != "running":
                break
            time.sleep(self.poll_seconds)
        refuse_failed(run_id, status.state, status.reason)

    def poll(self, run_id: str) -> RunStatus:
        """Return the status of a run, asking again if the platform does not answer."""
        retrying = Retrying(stop=stop_after_attempt(_MOST_ATTEMPTS), wait=wait_fixed(self.poll_seconds), reraise=True)
        return retrying(self.status, run_id)


def refuse_failed(run_id: str, state: str, reason: str) -> None:
    """Refuse the end of a run that has not succeeded.

    :raises RuntimeError: with the reason.
    """
    if state != "succeeded":
        raise RuntimeError(f"Run {run_id} failed: {reason or 'no reason given'}")
