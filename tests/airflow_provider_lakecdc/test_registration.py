"""Airflow discovers the installed provider."""

from __future__ import annotations

import subprocess
import sys

from tests.airflow_provider_lakecdc import home

# one process for all three, as each start of Airflow's command line takes seconds
ASK = """
from airflow.providers_manager import ProvidersManager
from airflow.sdk import conf
manager = ProvidersManager()
print("FOUND", manager.providers["airflow-provider-lakecdc"].version)
print("FOUND", *sorted(name for name in manager.extra_links_class_names if "lakecdc" in name))
print("FOUND", conf.get("lakecdc", "documents_uri"))
for kind in ("iceberg", "spark", "postgres", "mysql", "kafka"):
    print("FOUND", kind, manager.hooks[kind].package_name)
"""


def test_provider_links_settings_and_connection_type_are_known(installed: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=installed, capture_output=True, text=True, check=True, cwd=home.HOME
    )
    lines = [line.removeprefix("FOUND ") for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines == [
        "0.1.0",
        "airflow_provider_lakecdc.submit.job_run.JobReportLink airflow_provider_lakecdc.submit.job_run.SparkUiLink "
        "airflow_provider_lakecdc.submit.job_run.TableLink",
        f"file://{home.HOME}/lakecdc/documents",
        # connection types stay with their providers, which the extras install
        "iceberg apache-airflow-providers-apache-iceberg",
        "spark apache-airflow-providers-apache-spark",
        "postgres apache-airflow-providers-postgres",
        "mysql apache-airflow-providers-mysql",
        "kafka apache-airflow-providers-apache-kafka",
    ]
