"""pyiceberg's catalog properties become Spark's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.runtime import catalog_type, packages, refuse_unfit, spark_properties


def test_sqlite_becomes_a_jdbc_catalog() -> None:
    properties = spark_properties("lake", {"type": "sql", "uri": "sqlite:////tmp/c.db", "warehouse": "file:///tmp/w"})
    assert properties["spark.sql.catalog.lake.type"] == "jdbc"
    assert properties["spark.sql.catalog.lake.uri"] == "jdbc:sqlite:/tmp/c.db"
    assert properties["spark.sql.catalog.lake.jdbc.schema-version"] == "V1"


def test_postgres_credentials_leave_the_uri() -> None:
    properties = spark_properties("lake", {"uri": "postgresql+psycopg2://u%40x:p%2Fw@db:5433/cat?sslmode=require"})
    assert properties["spark.sql.catalog.lake.uri"] == "jdbc:postgresql://db:5433/cat?sslmode=require"
    assert properties["spark.sql.catalog.lake.jdbc.user"] == "u@x"
    assert properties["spark.sql.catalog.lake.jdbc.password"] == "p/w"


def test_a_password_ends_at_the_at_sign_as_sqlalchemy_reads_it() -> None:
    properties = spark_properties(
        "lake", {"type": "sql", "uri": "postgresql+psycopg2://u:p/w?#@db:5433/cat?sslmode=require"}
    )
    assert properties["spark.sql.catalog.lake.uri"] == "jdbc:postgresql://db:5433/cat?sslmode=require"
    assert properties["spark.sql.catalog.lake.jdbc.password"] == "p/w?#"


def test_rest_catalog_on_s3_gets_s3_settings() -> None:
    given = {
        "type": "rest",
        "uri": "http://127.0.0.1:8181",
        "s3.endpoint": "http://127.0.0.1:7070",
        "s3.region": "us-east-1",
        "s3.force-virtual-addressing": "false",
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
    }
    properties = spark_properties("lake", given)
    assert properties["spark.sql.catalog.lake.type"] == "rest"
    assert properties["spark.sql.catalog.lake.io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert properties["spark.sql.catalog.lake.s3.path-style-access"] == "true"
    assert properties["spark.sql.catalog.lake.client.region"] == "us-east-1"
    assert not [key for key in properties if "py-io-impl" in key or "force-virtual" in key]
    assert any("iceberg-aws-bundle" in package for package in packages(given))


def test_spark_sees_an_object_store_as_a_rest_catalog() -> None:
    ours = {"readable_paths": "true", "commit_service": "dynamodb://objects", "dynamodb.region": "eu-west-1"}
    given = {"type": "object_store", "warehouse": "s3://bucket/lake", **ours}
    endpoint = {"uri": "http://127.0.0.1:1", "token": "t"}
    prefix = "spark.sql.catalog.lake"
    assert spark_properties("lake", {**given, **endpoint}) == {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "rest",
        f"{prefix}.warehouse": "s3://bucket/lake",
        f"{prefix}.uri": "http://127.0.0.1:1",
        f"{prefix}.token": "t",
        f"{prefix}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    }
    assert [p.split(":")[1] for p in packages(given)[1:]] == ["iceberg-aws-bundle"]
    assert packages({"type": "object_store", "warehouse": "file:///data/lake"}) == packages(given)[:1]


@pytest.mark.parametrize("ask", [packages, catalog_type, lambda properties: spark_properties("lake", properties)])
def test_an_object_store_needs_a_warehouse(ask: Callable[[dict[str, str]], object]) -> None:
    with pytest.raises(SpecError, match="needs a warehouse.*s3://bucket/lake"):
        ask({"type": "object_store"})


def test_packages_follow_the_catalog() -> None:
    assert any("sqlite-jdbc" in p for p in packages({"type": "sql", "uri": "sqlite:////c.db"}))
    assert any("postgresql" in p for p in packages({"type": "sql", "uri": "postgresql+psycopg2://db/c"}))
    assert len(packages({"type": "hive", "uri": "thrift://h:9083"})) == 1


def test_packages_follow_a_referenced_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"type": "sql", "uri": {"env": "CATALOG_URI"}}
    assert [p.split(":")[1].split("-")[0] for p in packages(properties)[1:]] == ["sqlite", "postgresql", "mysql"]
    monkeypatch.setenv("CATALOG_URI", "postgresql+psycopg2://u:p@db/c")
    assert [p.split(":")[1] for p in packages(properties)[1:]] == ["postgresql"]


def test_a_catalog_without_tags_is_refused() -> None:
    refuse_unfit("lake", {"uri": "https://cat/iceberg"})
    with pytest.raises(SpecError, match="'lake' is Nessie"):
        refuse_unfit("lake", {"uri": "https://cat/iceberg", "nessie.is-nessie-catalog": "true"})


def test_type_is_inferred_as_in_pyiceberg() -> None:
    assert catalog_type({"uri": "https://cat"}) == "rest"
    assert catalog_type({"uri": "thrift://cat"}) == "hive"
    with pytest.raises(SpecError, match="'nessie' is not supported"):
        catalog_type({"type": "nessie"})
