"""Checks of Airflow's settings: Spark connection, documents folder, configuration of the DAGs."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.exceptions import JobBadInputError, JobClusterError
from airflow_provider_lakecdc.submit import launcher
from airflow_provider_lakecdc.submit.platforms import SPARK_SUBMIT, open_platform
from lakecdc.contract.findings import Finding

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from airflow_provider_lakecdc.submit.launcher import SparkTarget
    from airflow_provider_lakecdc.templates.config import LakeConfig

_SECONDS = 5
_PORTS = {"spark": 7077, "https": 443, "http": 80}


def spark_connection(conn_id: str, deploy_mode: str | None, targets: list[SparkTarget]) -> Finding | str:
    """Check the Spark connection and whether its master answers.

    :param targets: receives the connection's settings.
    :raises JobBadInputError: the connection does not exist.
    :raises JobClusterError: the master does not answer.
    """
    target = launcher.spark_target(conn_id, deploy_mode)
    targets.append(target)
    mode = "cluster" if target.cluster_mode else "client"
    text = f"{conn_id}, master {target.master}, {mode} mode"
    if target.platform != SPARK_SUBMIT:
        open_platform(conn_id)
        return f"{conn_id}, {target.platform}; only submitting a job shows whether it answers"
    if target.master == "yarn" and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & {*os.environ}:
        return Finding("spark connection", "fail", text, "Set HADOOP_CONF_DIR or YARN_CONF_DIR, so that YARN is found.")
    for place in _places(target.master):
        try:
            socket.create_connection(place, _SECONDS).close()
        except OSError as error:
            raise JobClusterError(
                f"{text}: {place[0]}:{place[1]} does not answer: {error}.",
                hint="Check host and port of the connection.",
            ) from error
    return text


def documents(target: SparkTarget | None) -> Finding | str:
    """Check the folder of specs and reports.

    :param target: where drivers run, if known.
    :raises JobBadInputError: the folder is not writable.
    """
    from airflow.sdk import ObjectStoragePath

    uri = settings.documents_uri()
    name = f"check-{uuid.uuid4()}"
    try:
        folder = ObjectStoragePath(uri)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("lakecdc")
        (folder / name).unlink()
    except Exception as error:
        raise JobBadInputError(
            f"Cannot write to {uri}: {type(error).__name__}: {error}.",
            hint="Set [lakecdc] documents_uri to a folder that workers may write to.",
        ) from error
    if target and target.cluster_mode and uri.startswith("file:"):
        remedy = "Set [lakecdc] documents_uri to object storage: the driver runs on another machine."
        return Finding("documents", "fail", f"{uri} is local to this machine", remedy)
    return f"{uri} takes files"


def dags(config: LakeConfig) -> Finding | str:
    """Create the configuration's DAGs as the DAG files do."""
    from airflow_provider_lakecdc import templates
    from airflow_provider_lakecdc.templates.planning import DAGS

    makers: list[Callable[[LakeConfig], DAG]] = [templates.ingest_dag] if config.source and config.targets else []
    if config.tables or config.targets:
        makers += DAGS.values()
    if not makers:
        remedy = "Name tables, or source and targets (docs/reference/settings.md)."
        return Finding("configuration", "fail", "it has neither tables nor targets", remedy)
    return ", ".join(make(config).dag_id for make in makers)


def _places(master: str) -> list[tuple[str, int]]:
    """Return the hosts and ports that must answer; none for several standalone masters, as any may be down."""
    url = urlsplit(master.removeprefix("k8s://"))
    if "," in master or url.scheme not in _PORTS or not url.hostname:
        return []
    return [(url.hostname, url.port or _PORTS[url.scheme])]
