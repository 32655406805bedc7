"""The provider's description for Airflow."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest
import yaml
from airflow.sdk import BaseOperator, BaseSensorOperator

from airflow_provider_lakecdc.get_provider_info import get_provider_info
from tests.airflow_provider_lakecdc import home


def test_it_is_valid_by_airflows_schema() -> None:
    schema = json.loads((Path(airflow.__path__[0]) / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_every_module_and_class_it_names_exists() -> None:
    info = get_provider_info()
    for kind in ("operators", "sensors", "triggers", "hooks"):
        for entry in info[kind]:
            for module in entry["python-modules"]:
                importlib.import_module(module)
    for path in info["extra-links"]:
        module, name = path.rsplit(".", 1)
        assert getattr(importlib.import_module(module), name)


# base classes of other operators and sensors
BASES = {
    "airflow_provider_lakecdc.operators.source_job.SourceJobOperator",
    "airflow_provider_lakecdc.sensors.polling.LimitSensor",
    "airflow_provider_lakecdc.sensors.polling.PollingSensor",
}


def test_the_registry_lists_each_operator_and_sensor() -> None:
    registry = yaml.safe_load((home.REPOSITORY / ".airflow-registry.yaml").read_text())
    info = get_provider_info()
    for kind, base in (("operators", BaseOperator), ("sensors", BaseSensorOperator)):
        modules = [importlib.import_module(name) for name in info[kind][0]["python-modules"]]
        public = {
            f"{module.__name__}.{name}": value
            for module in modules
            for name, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
        }
        assert {entry["module"] for entry in registry[kind]} == public.keys() - BASES
        assert all(entry["description"].endswith(".") for entry in registry[kind])


def test_every_operator_module_is_listed() -> None:
    import airflow_provider_lakecdc

    folder = Path(airflow_provider_lakecdc.__path__[0])
    named = {
        name
        for kind in ("operators", "sensors", "triggers")
        for e in get_provider_info()[kind]
        for name in e["python-modules"]
    }
    modules = {
        f"airflow_provider_lakecdc.{kind}.{path.stem}"
        for kind in ("operators", "sensors", "triggers")
        for path in (folder / kind).glob("[!_]*.py")
    }
    assert named == modules


def test_it_defines_no_connection_type() -> None:
    assert "connection-types" not in get_provider_info()


def test_reading_it_imports_neither_airflow_nor_the_library() -> None:
    code = (
        "import sys, airflow_provider_lakecdc.get_provider_info as g; g.get_provider_info();"
        "print([m for m in sys.modules if m.split('.')[0] in ('airflow', 'lakecdc', 'pyspark')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=_root())
    assert done.stdout.strip() == "[]"


def test_every_setting_in_use_is_described() -> None:
    import airflow_provider_lakecdc.settings as settings

    tree = ast.parse(Path(settings.__file__).read_text())
    read = {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") in ("_get", "_switch")
        and isinstance(node.args[0], ast.Constant)
    }
    assert read == set(get_provider_info()["config"]["lakecdc"]["options"])


@pytest.mark.parametrize(
    ("option", "value"),
    [("spark_conn_id", "cluster"), ("catalog_conn_id", "lake2"), ("documents_uri", "s3://bucket/docs")],
)
def test_settings_are_read_from_airflows_configuration(
    option: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import airflow_provider_lakecdc.settings as settings

    monkeypatch.setenv(f"AIRFLOW__LAKECDC__{option.upper()}", value)
    read: Any = getattr(settings, option)
    assert read() == value


def _root() -> Path:
    return Path(__file__).parents[2]
