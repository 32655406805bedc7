"""The surroundings of spark-submit: which connection, which binary, which Python, which environment.

Connections that work with apache-airflow-providers-apache-spark 6.3.4, as JSON in ``AIRFLOW_CONN_SPARK_DEFAULT``::

    {"conn_type": "spark", "host": "local[2]"}                         Spark inside the worker, two cores
    {"conn_type": "spark", "host": "spark://host:7077"}                a standalone cluster, client mode
    {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "client"}}
    {"conn_type": "spark", "host": "k8s://https://host:443", "extra": {"deploy-mode": "client"}}

The URI form ``spark://local[2]`` does not work: brackets are reserved for IPv6 addresses in a URI's host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_lakecdc.exceptions import JobBadInputError, LakecdcJobError
from airflow_provider_lakecdc.hooks.lookup import find_connection
from airflow_provider_lakecdc.submit.spark_submit import knows_kubernetes
from lakecdc.contract import runtime
from lakecdc.contract.report import EXIT_BAD_INPUT

_BINARY = "spark-submit"
_CONNECT_TYPE, _CONNECT_URL = "spark_connect", "sc://"
_SOURCE_SECONDS = 60


@dataclass(frozen=True)
class SparkTarget:
    """Where a job is submitted to.

    :param master: master URL of the connection.
    :param cluster_mode: the driver runs on the cluster, not in this worker.
    :param binary: name of the submit command that the connection asks for.
    """

    master: str
    cluster_mode: bool
    binary: str = _BINARY


def spark_target(conn_id: str, deploy_mode: str | None) -> SparkTarget:
    """Look at the Spark connection before it is used.

    ``SparkSubmitHook`` takes a connection it cannot find for a YARN cluster and submits there.

    :param conn_id: connection of type ``spark``.
    :param deploy_mode: mode the operator asks for, before the connection's extra ``deploy-mode``.
    :raises JobBadInputError: there is none, it is one to Spark Connect, or the provider that it needs is missing.
    """
    connection = find_connection(conn_id, "to submit the Spark job to", '{"conn_type": "spark", "host": "local[2]"}')
    master = connection.host or ""
    if connection.conn_type == _CONNECT_TYPE or master.startswith(_CONNECT_URL):
        raise JobBadInputError(
            f"The connection {conn_id!r} is one to Spark Connect, whose client has no JVM: the jobs call Iceberg's "
            "Java classes in the driver's.",
            hint="Use a connection of type spark whose host is local[N], spark://host:7077, yarn or k8s://https://host.",
        )
    if master.startswith("k8s://") and not knows_kubernetes():
        raise JobBadInputError(
            f"The connection {conn_id!r} leads to Kubernetes ({master}), for which Airflow has no provider here.",
            hint="Install apache-airflow-providers-cncf-kubernetes beside the Spark provider.",
        )
    extra = connection.extra_dejson
    mode = deploy_mode or extra.get("deploy-mode")
    return SparkTarget(master, mode == "cluster", str(extra.get("spark-binary", _BINARY)))


def submit_binary(target: SparkTarget) -> str | None:
    """The submit command to use, None for the connection's own if that is on the path.

    An Airflow that was started by its full path has no virtual environment on the path, but PySpark's
    ``spark-submit`` stands beside its Python.

    :raises JobBadInputError: if there is none.
    """
    if shutil.which(target.binary):
        return None
    beside = Path(sys.executable).parent / target.binary
    if beside.exists():
        return str(beside)
    raise JobBadInputError(
        f"There is no {target.binary} on this worker's path.",
        hint="Install pyspark into Airflow's environment (the extra [spark]) or put a Spark distribution on the path.",
    )


def worker_environment(target: SparkTarget) -> dict[str, str]:
    """Variables that make Spark use Airflow's own Python, and a JVM set for short jobs, where it runs in this worker.

    What the deployment has set already stays.
    """
    driver = {"PYSPARK_DRIVER_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": runtime.JAVA_OPTIONS}
    wanted = {} if target.cluster_mode else driver
    if target.master.startswith("local"):
        wanted["PYSPARK_PYTHON"] = sys.executable
    return {name: value for name, value in wanted.items() if name not in os.environ}


def refuse_secrets_in_cluster_mode(target: SparkTarget, secrets: Mapping[str, str]) -> None:
    """In cluster mode the driver does not inherit this worker's environment, and Spark would show it in ``--conf``.

    :param secrets: values by name of variable.
    :raises JobBadInputError: if there are any.
    """
    if target.cluster_mode and secrets:
        raise JobBadInputError(
            f"The job needs {len(secrets)} secrets of Airflow connections, and its driver runs on the cluster "
            f"({target.master}), which would get them only through the command line.",
            hint="Use client mode, or give the driver its secrets there (a mounted file, its own environment) and "
            'put references into the connection\'s extra, such as {"s3.secret-access-key": {"file": "/run/key"}}.',
        )


def ask_source(module: str, question: str, secrets: Mapping[str, str]) -> str:
    """Have a program of the library ask a source.

    :param module: such as ``lakecdc.probes.source_lag``.
    :param question: its standard input.
    :param secrets: values by name of variable that the source refers to.
    :return: what it has printed.
    :raises JobBadInputError: the source cannot answer this.
    :raises LakecdcJobError: it has not answered.
    """
    done = run_probe(module, question, {**os.environ, **secrets})
    if done is None:
        raise LakecdcJobError(
            f"The source has not answered in {_SOURCE_SECONDS} s.", hint="Check its address, and the network."
        )
    if done.returncode == EXIT_BAD_INPUT:
        raise JobBadInputError(f"The source cannot be asked: {done.stdout.strip()}")
    if done.returncode:
        told = done.stdout.strip() or (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        hint = "Look whether it is there, and whether this Python has the extra [spark], which brings its client."
        raise LakecdcJobError(f"The source cannot be asked: {told}", hint=hint)
    return done.stdout


def run_probe(module: str, question: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str] | None:
    """Run a program of the library in a Python of its own, since it may import what Airflow must not.

    :param module: such as ``lakecdc.probes.preflight``.
    :param question: its standard input.
    :return: how it has ended; None if it has not within a minute, and was killed.
    """
    command = [sys.executable, "-m", module]
    try:
        return subprocess.run(
            command, input=question, env=dict(environment), capture_output=True, text=True, timeout=_SOURCE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return None


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables in this task's process for as long as spark-submit, which inherits them, runs.

    The hook's own ``env_vars`` would not do: on YARN and Kubernetes it writes them onto the command line, and it is a
    templated field, which Airflow stores and shows.
    """
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
