"""The settings of the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.settings import Settings, from_environment


def test_settings_have_defaults() -> None:
    settings = from_environment({})
    assert (settings.seed, settings.rows, settings.hours) == (42, 200_000, 6)
    assert settings.folder.parts[-2:] == ("build", "demo")
    assert settings.catalog_properties["type"] == "sql" and settings.s3 is None


def test_settings_come_from_the_environment() -> None:
    settings = from_environment({"DEMO_SEED": "7", "DEMO_ROWS": "500", "DEMO_HOURS": "2", "DEMO_FOLDER": "/x/y"})
    assert settings == Settings(7, 500, 2, Path("/x/y"))


def test_an_object_store_is_the_only_service_of_the_tables() -> None:
    settings = from_environment({"DEMO_CATALOG": "object_store", "DEMO_FOLDER": "/x/y"})
    assert settings.s3 is not None and settings.warehouse == Path("/x/y/buckets/demo/lake")
    properties = settings.catalog_properties
    assert properties == settings.catalog_properties, "the port changed"
    assert "uri" not in properties and properties["warehouse"] == "s3://demo/lake"
    assert properties["s3.endpoint"] == settings.s3.endpoint


@pytest.mark.parametrize(
    "environment",
    [{"DEMO_ROWS": "many"}, {"DEMO_ROWS": "3"}, {"DEMO_HOURS": "0"}, {"DEMO_CATALOG": "nessie"}],
)
def test_invalid_values_are_refused_by_name(environment: dict[str, str]) -> None:
    (name,) = environment
    with pytest.raises(ValueError, match=name):
        from_environment(environment)
