"""Platforms that run Spark for their users; each is reached by the hook of its Airflow provider.

The connection's type decides, and for AWS, which has three platforms, its ``service``. Further settings of a platform
are the object ``spark`` in the connection's extra, such as::

    {"conn_type": "aws", "extra": {"spark": {"service": "emr-serverless", "application_id": "…", "role": "arn:aws:…"}}}
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from airflow.sdk import Connection
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.hooks.connections import find_connection
from airflow_provider_lakecdc.submit.submitter import RunStatus, Submitter
from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import parse

SPARK_SUBMIT = "spark-submit"
_SETTINGS, _SERVICE = "spark", "service"


@dataclass(frozen=True)
class Platform:
    """A platform.

    :param submitter: its class, ``module:name``; the class of its settings is the class's ``settings``.
    :param conn_type: type of its connections.
    :param extra: extra of this package with the Airflow provider that it needs.
    """

    submitter: str
    conn_type: str
    extra: str


#: by name, which is the connection's ``service`` if its type has several platforms
PLATFORMS = {
    "databricks": Platform("databricks:DatabricksRuns", "databricks", "databricks"),
    "dataproc": Platform("dataproc:DataprocBatches", "google_cloud_platform", "dataproc"),
    "emr": Platform("aws:EmrSteps", "aws", "aws"),
    "emr-serverless": Platform("aws:EmrServerless", "aws", "aws"),
    "glue": Platform("aws:Glue", "aws", "aws"),
    "kubernetes": Platform("kubernetes:SparkApplications", "kubernetes", "kubernetes"),
    "livy": Platform("livy:LivyBatches", "livy", "livy"),
}


def platform_of(connection: Connection) -> str:
    """Return the name of the platform that a connection leads to.

    :raises JobBadInputError: jobs cannot be submitted to it.
    """
    if connection.conn_type == "spark":
        return SPARK_SUBMIT
    names = [name for name, platform in PLATFORMS.items() if platform.conn_type == connection.conn_type]
    if len(names) == 1:
        return names[0]
    if not names:
        known = ", ".join(dict.fromkeys(["spark", *(platform.conn_type for platform in PLATFORMS.values())]))
        raise JobBadInputError(
            f"Jobs cannot be submitted to the connection {connection.conn_id!r} of type {connection.conn_type!r}.",
            hint=f"Use a connection of one of the types {known}.",
        )
    if (service := _settings(connection).get(_SERVICE)) in names:
        return str(service)
    raise JobBadInputError(
        f"The connection {connection.conn_id!r} does not name the service that jobs are submitted to.",
        hint=f'Set "spark": {{"service": …}} in its extra to one of {", ".join(names)}.',
    )


def open_platform(conn_id: str) -> Submitter:
    """Return what submits to the platform that a connection leads to.

    :raises JobBadInputError: the connection's settings are wrong, or the platform's Airflow provider is missing.
    """
    connection = find_connection(conn_id, "to submit the Spark job to", "{}")
    name = platform_of(connection)
    platform = PLATFORMS[name]
    kind: Any = resolve_name(f"{__name__}.{platform.submitter}")
    given = {key: value for key, value in _settings(connection).items() if key != _SERVICE}
    try:
        submitter: Submitter = kind(conn_id, parse(kind.settings, given, f"extra.{_SETTINGS} of {conn_id!r}"))
    except SpecError as error:
        raise JobBadInputError(str(error)) from error
    except ModuleNotFoundError as error:
        raise JobBadInputError(
            f"Jobs for {name} need Airflow's provider for it, which is missing: no module {error.name}.",
            hint=f"Install airflow-provider-lakecdc[{platform.extra}] on the workers.",
        ) from error
    return submitter


def _settings(connection: Connection) -> Mapping[str, Any]:
    settings = connection.extra_dejson.get(_SETTINGS) or {}
    if not isinstance(settings, Mapping):
        raise JobBadInputError(f"extra.{_SETTINGS} of {connection.conn_id!r} must be an object.")
    return settings


class RunEndTrigger(BaseTrigger):
    """Wait until a run on a platform, which a connection leads to, ends."""

    def __init__(self, *, conn_id: str, run_id: str) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.run_id = run_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and its arguments."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"conn_id": self.conn_id, "run_id": self.run_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until the run ends; a platform that does not answer ends the wait, and the next try goes on with it."""
        try:
            while (status := await asyncio.to_thread(self._poll)).state == "running":
                await asyncio.sleep(Submitter.poll_seconds)
            yield TriggerEvent({"state": status.state, "reason": status.reason})
        except Exception as error:
            yield TriggerEvent({"state": "unknown", "reason": f"{type(error).__name__}: {error}"})

    async def on_kill(self) -> None:
        """Stop the run, because a user has ended the task."""
        await asyncio.to_thread(lambda: open_platform(self.conn_id).stop(self.run_id))

    def _poll(self) -> RunStatus:
        # a platform of its own each time, so that renewed credentials take effect
        return open_platform(self.conn_id).poll(self.run_id)
