"""Where jobs are submitted to, and the environment of spark-submit: binary, Python, variables.

Connections of spark-submit that work with its Airflow provider 6.3.4, as JSON in ``AIRFLOW_CONN_SPARK_DEFAULT``::

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
from airflow_provider_lakecdc.hooks.connections import find_connection
from airflow_provider_lakecdc.submit.platforms import SPARK_SUBMIT, platform_of
from airflow_provider_lakecdc.submit.spark_submit import knows_kubernetes
from lakecdc.contract import runtime
from lakecdc.contract.report import EXIT_BAD_INPUT

_BINARY = "spark-submit"
_CONNECT_TYPE, _CONNECT_URL = "spark_connect", "sc://"
_SOURCE_SECONDS = 60


@dataclass(frozen=True)
class SparkTarget:
    """The Spark that jobs are submitted to.

    :param master: master URL of the connection.
    :param cluster_mode: whether the driver runs on the cluster instead of this worker.
    :param binary: name of the connection's submit command.
    :param platform: the platform that jobs are submitted to; for others than spark-submit the master is its name.
    """

    master: str
    cluster_mode: bool
    binary: str = _BINARY
    platform: str = SPARK_SUBMIT


def spark_target(conn_id: str, deploy_mode: str | None) -> SparkTarget:
    """Check a connection to Spark before use.

    ``SparkSubmitHook`` treats a missing connection as a YARN cluster and submits there.

    :param deploy_mode: the operator's mode, which overrides the connection's extra ``deploy-mode``.
    :raises JobBadInputError: the connection does not exist, is of another type or for Spark Connect, or a provider is
        missing.
    """
    connection = find_connection(conn_id, "to submit the Spark job to", '{"conn_type": "spark", "host": "local[2]"}')
    master = connection.host or ""
    if connection.conn_type == _CONNECT_TYPE or master.startswith(_CONNECT_URL):
        raise JobBadInputError(
            f"The connection {conn_id!r} is for Spark Connect, whose client has no JVM: jobs call Iceberg's "
            "Java classes in the driver's JVM.",
            hint="Use a connection of type spark whose host is local[N], spark://host:7077, yarn or k8s://https://host.",
        )
    platform = platform_of(connection)
    if platform != SPARK_SUBMIT:
        if deploy_mode == "client":
            raise JobBadInputError(f"{platform} has no client mode.", hint="Remove deploy_mode.")
        return SparkTarget(platform, cluster_mode=True, platform=platform)
    if master.startswith("k8s://") and not knows_kubernetes():
        raise JobBadInputError(
            f"The connection {conn_id!r} uses Kubernetes ({master}), but Airflow's Kubernetes provider is missing.",
            hint="Install apache-airflow-providers-cncf-kubernetes.",
        )
    extra = connection.extra_dejson
    mode = deploy_mode or extra.get("deploy-mode")
    return SparkTarget(master, mode == "cluster", str(extra.get("spark-binary", _BINARY)))


def submit_binary(target: SparkTarget) -> str | None:
    """Return the submit command to use; None if the connection's own is on the path.

    If Airflow was started by its full path, its virtual environment is not on the path, but PySpark's ``spark-submit``
    is beside its Python.

    :raises JobBadInputError: there is none.
    """
    if shutil.which(target.binary):
        return None
    beside = Path(sys.executable).parent / target.binary
    if beside.exists():
        return str(beside)
    raise JobBadInputError(
        f"{target.binary} is not on this worker's path.",
        hint="Install pyspark into Airflow's environment (extra [spark]) or put a Spark distribution on the path.",
    )


def worker_environment(target: SparkTarget) -> dict[str, str]:
    """Return variables for Airflow's own Python and a JVM tuned for short jobs, as far as Spark runs on this worker.

    Existing variables of the deployment are not overridden.
    """
    driver = {"PYSPARK_DRIVER_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": runtime.JAVA_OPTIONS}
    variables = {} if target.cluster_mode else driver
    if target.master.startswith("local"):
        variables["PYSPARK_PYTHON"] = sys.executable
    return {name: value for name, value in variables.items() if name not in os.environ}


def refuse_secrets_in_cluster_mode(target: SparkTarget, secrets: Mapping[str, str]) -> None:
    """Reject secrets in cluster mode: the driver does not inherit the environment, and ``--conf`` would expose them.

    :raises JobBadInputError: there are secrets.
    """
    if target.cluster_mode and secrets:
        raise JobBadInputError(
            f"The job needs {len(secrets)} secrets of Airflow connections, but its driver runs on the cluster "
            f"({target.master}) and would get them only through the command line.",
            hint="Use spark-submit in client mode, or provide the secrets on the cluster (a mounted file, a variable) "
            'and refer to them in the connection\'s extra, such as {"s3.secret-access-key": {"file": "/run/key"}}.',
        )


def ask_source(module: str, question: str, secrets: Mapping[str, str]) -> str:
    """Query a source with a module of the library in a separate Python process; see :func:`run_probe`.

    :param secrets: values of the source's secrets by variable.
    :return: its standard output.
    :raises JobBadInputError: the source cannot be queried for this.
    :raises LakecdcJobError: the query failed.
    """
    result = run_probe(module, question, {**os.environ, **secrets})
    if result is None:
        raise LakecdcJobError(
            f"The source did not answer in {_SOURCE_SECONDS} s.", hint="Check its address and the network."
        )
    if result.returncode == EXIT_BAD_INPUT:
        raise JobBadInputError(f"Cannot query the source: {result.stdout.strip()}")
    if result.returncode:
        output = result.stdout.strip() or (result.stderr.strip().splitlines() or ["no output"])[-1]
        hint = "Check whether the source is up, and whether this Python has the extra [spark] with the source's client."
        raise LakecdcJobError(f"Cannot query the source: {output}", hint=hint)
    return result.stdout


def run_probe(module: str, question: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str] | None:
    """Run a module of the library in a separate Python process, since it may import what Airflow must not.

    :param module: such as ``lakecdc.probes.preflight``.
    :param question: its standard input.
    :return: the finished process; None after a timeout of a minute.
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
    """Set variables in this process while spark-submit, which inherits them, runs.

    The hook's own ``env_vars`` are unsafe: on YARN and Kubernetes they end up on the command line, and Airflow stores
    and shows the templated field.
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
