"""Submissions to clusters that the tests lack, checked by Spark's own parser of arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit

import tests.airflow_provider_lakecdc.home as home  # isort: skip
from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator
from tests.airflow_provider_lakecdc.conftest import connection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = {"type": "rest", "uri": "https://catalog.example.com", "warehouse": "lake"}
REFERENCE = {"file": "/run/secrets/lake"}


def rewrite() -> RewriteDeleteFilesOperator:
    return RewriteDeleteFilesOperator(
        task_id="t",
        tables=["shop.orders"],
        catalog_conn_id="lake",
        documents_uri="s3://documents/lakecdc",
        application="local:///opt/lakecdc/rewrite_delete_files.py",
        archives="s3a://lake/cluster-env.tar.gz#environment",
        conf={"spark.pyspark.python": "./environment/bin/python"},
    )


def parsed(spark: SparkSession, command: list[str]) -> Any:
    """Return the arguments of spark-submit as parsed by Spark, which refuses unknown ones."""
    jvm: Any = spark.sparkContext._jvm
    utils = jvm.org.apache.spark.api.python.PythonUtils
    environment = utils.toScalaMap({"HADOOP_CONF_DIR": "/etc/hadoop"})
    return jvm.org.apache.spark.deploy.SparkSubmitArguments(utils.toSeq(command), environment)


@pytest.mark.parametrize("master", ["yarn", "k8s://https://cluster.example.com:6443"])
def test_the_driver_on_the_cluster_gets_documents_and_references(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    home.migrate()
    # the provider creates a client of Kubernetes before it builds the command, without using it
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    connection(monkeypatch, "spark_default", conn_type="spark", host=master, extra={"deploy-mode": "cluster"})
    connection(monkeypatch, "lake", conn_type="iceberg", extra={**CATALOG, "token": REFERENCE})
    rendered = rewrite().render()
    assert rendered["spec"]["catalog"]["properties"]["token"] == REFERENCE
    assert "PYSPARK_DRIVER_PYTHON" not in rendered["environment"]
    arguments = parsed(spark, rendered["command"][1:])
    assert (arguments.maybeMaster().get(), arguments.deployMode(), arguments.isPython()) == (master, "cluster", True)
    assert arguments.primaryResource() == "local:///opt/lakecdc/rewrite_delete_files.py"
    assert arguments.archives() == "s3a://lake/cluster-env.tar.gz#environment"
    assert "lakecdc-" in arguments.pyFiles() and "iceberg-spark-runtime" in arguments.packages()
    given = [arguments.childArgs().apply(number) for number in range(arguments.childArgs().size())]
    assert given[::2] == ["--spec", "--report"]
    assert all(uri.startswith("s3://documents/lakecdc/") for uri in given[1::2])
