"""Trino, DuckDB and Flink read what jobs wrote and write what Spark reads, through ``airflow lakecdc serve``."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.spec import Catalog
from lakecdc.runtime.session import use_catalog
from local_services import flink
from local_services.paths import REPOSITORY
from local_services.process import Service, port_answers
from local_services.reader_tools import HTTPFS
from local_services.readers import Trino
from local_services.s3 import S3Server
from tests.conftest import Lake
from tests.e2e.flink_program import ANSWER
from tests.e2e.objects import COLUMNS, TABLE, Objects
from tests.lakecdc.moments.support import Remembered, iso
from tests.readers import duckdb_connection

pytestmark = [pytest.mark.services, pytest.mark.soak]
Query = Callable[[str], Sequence[Sequence[Any]]]
TOKEN, PASSWORD = "a-token-of-the-clients", "changeit"
#: differences between their SQL dialects
VERSION_3 = {"trino": "WITH (format_version = 3)", "duckdb": "WITH ('format-version' = 3)"}
PARTITIONED = {"trino": "WITH (partitioning = ARRAY['bucket(id, 2)'])", "duckdb": "PARTITIONED BY (bucket(2, id))"}
ENGINES = [*VERSION_3]


class Serve(Service):
    """The command as a process.

    :param objects: the catalog.
    :param options: options of the command.
    """

    name = "serve"

    def __init__(self, folder: Path, objects: Objects, *options: str) -> None:
        super().__init__(folder / f"serve{len(options)}.log")
        self._folder, self._objects, self._options = folder, objects, options

    def command(self) -> Sequence[str]:
        """Return the command line."""
        serve = (sys.executable, "-m", "airflow_provider_lakecdc", "serve", "--catalog", "bare")
        return [*serve, "--port", str(self.port), "--token-env", "LAKE_TOKEN", *self._options]

    def environment(self) -> Mapping[str, str]:
        """Return the connection and the token."""
        connection = {"conn_type": "iceberg", "extra": self._objects.properties}
        return {
            "AIRFLOW_HOME": str(self._folder / "airflow"),
            "AIRFLOW_CONN_BARE": json.dumps(connection),
            "LAKE_TOKEN": TOKEN,
        }

    def is_ready(self) -> bool:
        """Return whether it listens."""
        return port_answers(self.port)


@pytest.fixture(scope="module")
def objects(lake: Lake, s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Objects]:
    """Make a catalog in a bucket, also in Spark."""
    name = lake.new_name("engines").replace(".", "_")
    opened = Objects(name, tmp_path_factory.mktemp("engines"), **s3.properties, warehouse="s3://lab/engines")
    opened.secrets = {"s3.secret-access-key": {"env": "S3_SECRET"}}
    use_catalog(lake.spark, Catalog(name, opened.properties))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S3_SECRET", s3.secret_key)
        yield opened


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Make a certificate, its key, and a Java trust store that contains it."""
    folder = tmp_path_factory.mktemp("certificate")
    chain, key, store = (folder / name for name in ("lake.pem", "lake.key", "lake.p12"))
    create = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    trust = ("keytool", "-importcert", "-noprompt", "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "lake")
    for command in (*create, *subject, "-out", chain, "-keyout", key), (*trust, "-file", chain, "-keystore", store):
        subprocess.run(command, check=True, capture_output=True)
    return chain, key, store


@pytest.fixture(scope="module")
def addresses(objects: Objects, certificate: tuple[Path, ...]) -> Iterator[dict[str, str]]:
    """Serve the catalog at two addresses: ``reads``, with TLS, and ``writes``."""
    chain, key, _ = certificate
    secured = ("--certificate", str(chain), "--key", str(key))
    with Serve(objects.folder, objects, *secured) as reads, Serve(objects.folder, objects, "--write") as writes:
        yield {"reads": f"https://127.0.0.1:{reads.port}", "writes": f"http://127.0.0.1:{writes.port}"}


@pytest.fixture(scope="module")
def engines(
    objects: Objects, addresses: Mapping[str, str], certificate: tuple[Path, ...], s3: S3Server
) -> Iterator[Mapping[str, Query]]:
    """Start Trino and DuckDB with the catalogs ``reads`` and ``writes``."""
    chain, _, store = certificate
    settings = {
        "iceberg.rest-catalog.security": "OAUTH2",
        "iceberg.rest-catalog.oauth2.token": "${ENV:LAKE_TOKEN}",
        "iceberg.rest-catalog.oauth2.token-refresh-enabled": "false",
        "fs.native-s3.enabled": "true",
        "s3.endpoint": s3.endpoint,
        "s3.region": s3.properties["s3.region"],
        "s3.path-style-access": "true",
        "s3.aws-access-key": s3.access_key,
        "s3.aws-secret-key": s3.secret_key,
    }
    catalogs = {name: {**settings, "iceberg.rest-catalog.uri": uri} for name, uri in addresses.items()}
    trusting = (f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={PASSWORD}")
    with ExitStack() as running:
        running.enter_context(pytest.MonkeyPatch.context()).setenv("LAKE_TOKEN", TOKEN)
        trino = running.enter_context(Trino(objects.folder / "trino", catalogs, trusting))
        duckdb = running.enter_context(duckdb_connection())
        HTTPFS.check()
        (extension,) = HTTPFS.folder.rglob("*.duckdb_extension")
        account = f"KEY_ID '{s3.access_key}', SECRET '{s3.secret_key}', REGION '{s3.properties['s3.region']}'"
        token = f"TOKEN '{TOKEN}'"
        storage = f"ENDPOINT '{s3.endpoint.removeprefix('http://')}', URL_STYLE 'path', USE_SSL false"
        for statement in (
            f"LOAD '{extension}'",
            f"SET GLOBAL ca_cert_file = '{chain}'",
            f"CREATE SECRET (TYPE s3, {account}, {storage})",
            *(f"ATTACH '' AS {name} (TYPE iceberg, ENDPOINT '{uri}', {token})" for name, uri in addresses.items()),
        ):
            duckdb.execute(statement)
        # one connection per thread
        yield {"trino": trino.rows, "duckdb": lambda query: duckdb.cursor().execute(query).fetchall()}


@pytest.mark.parametrize("version", [2, 3])
def test_engines_read_tables_and_their_moments(objects: Objects, engines: Mapping[str, Query], version: int) -> None:
    table, history = f"shop.v{version}", Remembered(random.Random(version))
    for _ in range(2):
        for _ in range(20):
            history.statement(6)
        objects.feed(history, table, history_table=f"{table}_history", format_version=version)
    moment = history.moments()[-8]
    assert history.at(moment) != (now := history.at(history.moments()[-1]))
    options = {"moment": iso(moment), "history_tables": {table: f"{table}_history"}}
    restored = objects.run("restore_moment", tables=[table], options=options)
    namespace, _, shown = restored["as_table"].partition(".")
    # Trino's table names have no @ and no capital letters
    of_moment = {"trino": f"{table} FOR VERSION AS OF '{restored['tag']}'", "duckdb": f'{namespace}."{shown}"'}
    for engine, query in engines.items():
        for source, expected in ((table, now), (of_moment[engine], history.at(moment))):
            rows = query(f"SELECT {COLUMNS} FROM reads.{source}")
            assert sorted(map(tuple, rows), key=str) == expected, (engine, source)
    listed = {row[0] for row in engines["trino"]("SHOW TABLES FROM reads.shop")}
    assert {table.removeprefix("shop."), f"{table.removeprefix('shop.')}_history"} <= listed
    # DuckDB caches the moments it has read
    names = {row[2] for row in engines["duckdb"]("SHOW ALL TABLES") if row[:2] == ("reads", "shop")}
    assert listed == {name for name in names if "@" not in name}


@pytest.mark.parametrize("kind", ["v2", "v3"])
@pytest.mark.parametrize("engine", ENGINES)
def test_tables_written_by_engines_are_read_by_all(
    objects: Objects, engines: Mapping[str, Query], lake: Lake, engine: str, kind: str
) -> None:
    schema, query = f"{engine}_{kind}", engines[engine]
    table, written = f"{schema}.orders", PARTITIONED[engine] if kind == "v2" else VERSION_3[engine]
    for statement in (
        f"CREATE SCHEMA writes.{schema}",
        f"CREATE TABLE writes.{table} (id bigint, name varchar, amount decimal(12, 2)) {written}",
        f"INSERT INTO writes.{table} VALUES (1, 'a', 1.5), (2, 'b', 2.5), (3, 'c', NULL), (4, 'd', 4)",
        f"DELETE FROM writes.{table} WHERE id = 2",
        f"UPDATE writes.{table} SET name = 'cc' WHERE id = 3",
        f"MERGE INTO writes.{table} t USING (VALUES (4, 'dd'), (5, 'e')) AS s (id, name) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)",
        f"ALTER TABLE writes.{table} ADD COLUMN more varchar",
        f"ALTER TABLE writes.{table} RENAME COLUMN name TO label",
        f"CREATE TABLE writes.{schema}.other AS SELECT * FROM writes.{table}",
        f"ALTER TABLE writes.{schema}.other RENAME TO copied",
    ):
        query(statement)
    expected = ["(1, 'a', '1.50', None)", "(3, 'cc', None, None)", "(4, 'dd', '4.00', None)", "(5, 'e', None, None)"]
    columns = "id, label, CAST(amount AS {}), more"
    readers = {**engines, "spark": lambda statement: lake.sql(statement).collect()}
    for reader, read in readers.items():
        catalog = objects.name if reader == "spark" else "reads"
        chosen = columns.format("string" if reader == "spark" else "varchar")
        for name in (table, f"{schema}.copied"):
            rows = read(f"SELECT {chosen} FROM {catalog}.{name}")
            assert sorted(str(tuple(row)) for row in rows) == expected, (reader, name)
    version = {"format-version": kind[1:]}.items()
    properties = lake.sql(f"SHOW TBLPROPERTIES {objects.name}.{table}").collect()
    assert version <= {row.key: row.value for row in properties}.items()
    lake.sql(f"INSERT INTO {objects.name}.{table} VALUES (6, 'f', 1, 'spark')")
    assert query(f"SELECT more FROM writes.{table} WHERE id = 6")[0][0] == "spark"
    for name in (table, f"{schema}.copied"):
        query(f"DROP TABLE writes.{name}")
    assert lake.sql(f"SHOW TABLES IN {objects.name}.{schema}").collect() == []
    query(f"DROP SCHEMA writes.{schema}")
    assert schema not in {row[0] for row in lake.sql(f"SHOW NAMESPACES IN {objects.name}").collect()}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_read_only_endpoint_refuses_writes(
    objects: Objects, engines: Mapping[str, Query], lake: Lake, engine: str
) -> None:
    lake.sql(f"CREATE NAMESPACE {objects.name}.of_{engine}")
    lake.sql(f"CREATE TABLE {objects.name}.of_{engine}.t (id bigint) USING iceberg")
    for statement in (
        f"INSERT INTO reads.of_{engine}.t VALUES (1)",
        f"CREATE TABLE reads.of_{engine}.more (id bigint)",
        f"DROP TABLE reads.of_{engine}.t",
        f"CREATE SCHEMA reads.more_of_{engine}",
    ):
        with pytest.raises(Exception, match="does not support endpoint|Forbidden|Failed to drop"):
            engines[engine](statement)
    assert engines[engine](f"SELECT * FROM reads.of_{engine}.t") == []
    assert f"more_of_{engine}" not in {row[0] for row in lake.sql(f"SHOW NAMESPACES IN {objects.name}").collect()}


def test_concurrent_inserts_of_engines_are_neither_lost_nor_duplicated(
    objects: Objects, engines: Mapping[str, Query], lake: Lake
) -> None:
    """Count rows: a refused insert has written nothing; Trino retries by itself, DuckDB's user must."""
    lake.sql(f"CREATE NAMESPACE {objects.name}.race")
    lake.sql(f"CREATE TABLE {objects.name}.race.t (id string) USING iceberg")
    inserted: list[str] = []
    refused: list[str] = []

    def insert(name: str, query: Query, catalog: str) -> None:
        for number in range(12):
            id = f"{name} {number}"
            try:
                query(f"INSERT INTO {catalog}.race.t VALUES ('{id}')")
                inserted.append(id)
            except Exception as error:
                refused.append(f"{id}: {error}")

    spark: Query = lambda statement: lake.sql(statement).collect()  # noqa: E731
    writers = [(f"{engine}{number}", engines[engine], "writes") for engine in ENGINES for number in range(2)]
    threads = [threading.Thread(target=insert, args=given) for given in (*writers, ("spark", spark, objects.name))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    rows = sorted(row[0] for row in engines["trino"]("SELECT id FROM reads.race.t"))
    assert rows == sorted(inserted)
    # of two processes of one engine, one may lose each time
    assert {id.partition(" ")[0].rstrip("01") for id in rows} == {*ENGINES, "spark"}
    assert len(inserted) + len(refused) == 12 * len(threads)
    assert all(re.search("409|CommitFailed|Commit failed", each) for each in refused), refused
    print(f"{len(inserted)} of {len(inserted) + len(refused)} inserts succeeded")


def test_flink_reads_and_writes(lake: Lake, tmp_path: Path) -> None:
    objects = Objects(lake.new_name("flink").replace(".", "_"), tmp_path)
    use_catalog(lake.spark, Catalog(objects.name, objects.properties))
    history = Remembered.of(5, 30)
    objects.feed(history)
    history.update(next(iter(history.rows)), touch_doc=True)
    objects.feed(history)
    with Serve(tmp_path, objects, "--write") as serve:
        catalog = f"'uri' = 'http://127.0.0.1:{serve.port}', 'token' = '{TOKEN}', 'token-refresh-enabled' = 'false'"
        statements = [
            f"CREATE CATALOG lake WITH ('type' = 'iceberg', 'catalog-type' = 'rest', {catalog})",
            "SHOW TABLES IN lake.shop",
            f"SELECT {COLUMNS} FROM lake.{TABLE}",
            "CREATE DATABASE lake.flink",
            "CREATE TABLE lake.flink.t (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) "
            "WITH ('format-version' = '2', 'write.upsert.enabled' = 'true')",
            "INSERT INTO lake.flink.t VALUES (1, 'a'), (2, 'b')",
            "INSERT INTO lake.flink.t VALUES (2, 'bb')",
            "SELECT * FROM lake.flink.t",
            "CREATE TABLE lake.flink.other (id BIGINT)",
            "DROP TABLE lake.flink.other",
        ]
        printed = subprocess.run(
            [flink.PYTHON, "-m", "tests.e2e.flink_program"],
            input=json.dumps(statements),
            cwd=REPOSITORY,
            env=flink.environment(tmp_path),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    answers = [json.loads(line.removeprefix(ANSWER)) for line in printed.splitlines() if line.startswith(ANSWER)]
    assert answers[0] == [["t"]]
    assert sorted(map(tuple, answers[1])) == history.expected()
    assert sorted(answers[2]) == [[1, "a"], [2, "bb"]]
    rows = lake.sql(f"SELECT id, name FROM {objects.name}.flink.t ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, "a"), (2, "bb")]
    assert [row.tableName for row in lake.sql(f"SHOW TABLES IN {objects.name}.flink").collect()] == ["t"]
