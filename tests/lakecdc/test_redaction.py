"""A job under spark-submit leaves no secret in event log, environment page, log and report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkConf

from lakecdc.contract.runtime import packages
from lakecdc.runtime.session import redaction

SCRIPT = Path(__file__).resolve().parents[2] / "spark_jobs" / "rewrite_manifests.py"
SECRETS = {"adls.account-key": "hush-azure", "header.Cookie": "hush-cookie", "s3.sse.key": "hush-sse"}
SETTINGS = {
    "spark.redaction.regex": "tenant",
    "spark.sql.iceberg.executor-cache.max-entry-size": "12345",
    "spark.mine.tenant": "hush-theirs",
    "spark.mine.address": "postgresql://me:hu/sh-address@db/shop",
    "spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net": "hush-hadoop",
}


@pytest.mark.parametrize(
    ("given", "hidden"),
    [
        ({}, ["fs.azure.account.key.x", "ssl.keystore.password", "header.Authorization", "passwd=x", "a://b:c/d@e"]),
        ({"spark.redaction.regex": "(?i)tenant"}, ["Tenant", "token"]),
    ],
)
def test_a_users_pattern_is_kept(given: dict[str, str], hidden: list[str]) -> None:
    import re

    (pattern,) = redaction(SparkConf(loadDefaults=False).setAll(list(given.items()))).values()
    # Java allows flags inside a group; Python requires a colon after them
    in_python = re.compile(pattern.replace("(?:(?i)", "(?i:") if given else pattern)
    assert [text for text in hidden if not in_python.search(text)] == []
    assert not in_python.search("hdfs://db:8020/shop@x")


def test_a_submitted_job_leaves_no_secret(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    variables = {f"HUSH_{number}": value for number, value in enumerate(SECRETS.values())}
    references = {name: {"env": variable} for name, variable in zip(SECRETS, variables, strict=True)}
    catalog = {"name": "lake", "properties": {**properties, **references}}
    (tmp_path / "spec.json").write_text(
        json.dumps({"version": 1, "job": "rewrite_manifests", "catalog": catalog, "tables": ["shop.none"]})
    )
    (tmp_path / "events").mkdir()
    events = {"enabled": "true", "compress": "false", "rolling.enabled": "false", "dir": f"file://{tmp_path}/events"}
    settings = {**SETTINGS, **{f"spark.eventLog.{name}": value for name, value in events.items()}}
    # without settings of this test's own session
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--master", "local[1]", "--packages", ",".join(packages(properties))),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
            *(str(SCRIPT), "--spec", f"{tmp_path}/spec.json", "--report", f"{tmp_path}/report.json"),
        ],
        env={**environment, **variables, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert (tmp_path / "report.json").exists(), done.stderr
    left = {path.name: path.read_text() for path in (*(tmp_path / "events").glob("*"), tmp_path / "report.json")}
    output = "\n".join([*left.values(), done.stdout, done.stderr])
    assert "spark.sql.catalog.lake.adls.account-key" in output and "spark.mine.tenant" in output, done.stderr
    assert "hush" not in output and "sh-address" not in output
    # other settings of spark-submit are shown
    assert '"spark.python.daemon.module":"lakecdc.runtime.daemon"' in output
    assert '"spark.sql.iceberg.executor-cache.max-entry-size":"12345"' in output
