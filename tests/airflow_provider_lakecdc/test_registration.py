"""Airflow finds the provider once it is installed."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.airflow_provider_lakecdc import home


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which the provider is installed, made of what setup.cfg declares."""
    declared = configparser.ConfigParser()
    declared.read(home.REPOSITORY / "setup.cfg")
    name, version = declared["metadata"]["name"], declared["metadata"]["version"]
    folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = declared["options.entry_points"]
    text = "".join(f"[{group}]\n{entries.strip()}\n" for group, entries in groups.items())
    (folder / "entry_points.txt").write_text(text)
    path = [str(tmp_path), str(home.REPOSITORY), str(home.REPOSITORY / "spark_jobs")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


# one process for all three: each start of Airflow's command line takes seconds
ASK = """
from airflow.providers_manager import ProvidersManager
from airflow.sdk import conf
manager = ProvidersManager()
print("FOUND", manager.providers["airflow-provider-lakecdc"].version)
print("FOUND", "airflow_provider_lakecdc.links.JobReportLink" in manager.extra_links_class_names)
print("FOUND", conf.get("lakecdc", "documents_uri"))
for kind in ("iceberg", "spark", "postgres", "mysql", "kafka"):
    print("FOUND", kind, manager.hooks[kind].package_name)
"""


def test_provider_links_settings_and_connection_type_are_known(installed: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=installed, capture_output=True, text=True, check=True, cwd=home.HOME
    )
    found = [line.removeprefix("FOUND ") for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert found == [
        "0.1.0",
        "True",
        f"file://{home.HOME}/lakecdc/documents",
        # connection types stay with the providers that own them, which the extras bring
        "iceberg apache-airflow-providers-apache-iceberg",
        "spark apache-airflow-providers-apache-spark",
        "postgres apache-airflow-providers-postgres",
        "mysql apache-airflow-providers-mysql",
        "kafka apache-airflow-providers-apache-kafka",
    ]
