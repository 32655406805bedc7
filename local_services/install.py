"""Install the tools of the service tests: S3, catalogs, Kafka, registry, Flink, MySQL, a browser.

Run as ``python -m local_services.install``; does nothing where everything is in place. ``--packages`` installs only the
distribution's packages, among which a Java compiler may bring another Java; ``--soak`` also installs Nessie, Trino,
ClickHouse, DuckDB's HTTP extension and dbt, 1.6 GB, for tests on demand.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from local_services import apt, flink, go, kafka_jars, mariadb, mysql_packages, registry_jars
from local_services.catalog_tools import HIVE, MOTO, NESSIE
from local_services.maven import copy_dependencies
from local_services.paths import TOOLS
from local_services.process import ServiceError
from local_services.reader_tools import CLICKHOUSE, COSMOS, DBT, HTTPFS, TRINO

HERE = Path(__file__).resolve().parent
VERSITYGW_VERSION = "v1.8.0"
VERSITYGW = TOOLS / "bin" / f"versitygw-{VERSITYGW_VERSION}"
ICEBERG_REST = TOOLS / "iceberg-rest"
_one_maven = threading.Lock()


def main(arguments: Sequence[str] = ()) -> None:
    """Install everything.

    :param arguments: command-line arguments
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", action="store_true", help="only the packages of the distribution")
    parser.add_argument("--soak", action="store_true", help="also what tests on demand need")
    options = parser.parse_args(arguments)
    install_packages(missing_packages())
    if options.packages:
        return
    # compile and download at the same time
    parts = (
        *(install_flink, install_s3_server, install_kafka, install_schema_registry, install_rest_catalog),
        *(install_mysql, install_glue, install_hive),
        *(
            (install_nessie, install_trino, install_clickhouse, install_httpfs, install_dbt, install_cosmos)
            if options.soak
            else ()
        ),
    )
    with ThreadPoolExecutor(len(parts)) as pool:
        for done in [pool.submit(part) for part in parts]:
            done.result()


def print_progress(text: str) -> None:
    """Print one line of progress."""
    print(f"services: {text}", flush=True)


def install_packages(missing: Sequence[str]) -> None:
    """Install Debian packages with apt-get, as root.

    :raises ServiceError: if they cannot be installed here; the message names them
    """
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ServiceError(f"Packages are missing. Run apt-get install {' '.join(missing)}")
    print_progress(f"installing {' '.join(missing)}")
    apt.install(missing)


def missing_packages() -> list[str]:
    """Return the Debian packages of the programs that are missing."""
    missing = [] if mariadb.is_installed() else ["mariadb-server"]
    if shutil.which("chromium") is None:
        # without fonts it draws no letters
        missing += ["chromium", "fonts-liberation"]
    missing += missing_for_s3()
    fetched = (is_stamped(ICEBERG_REST), *(part.is_installed() for part in (kafka_jars, flink, registry_jars, HIVE)))
    if not all(fetched) and shutil.which("mvn") is None:
        missing.append("maven")
    if not (is_stamped(ICEBERG_REST) and HIVE.is_installed()) and shutil.which("javac") is None:
        missing.append(f"openjdk-{java_major()}-jdk-headless")
    return missing


def missing_for_s3() -> list[str]:
    """Return the missing Debian packages for compiling the S3 server."""
    if VERSITYGW.exists() or shutil.which("go") is not None:
        return []
    # without certificates Go cannot reach its proxy, and no other package depends on them
    return ["golang-go", "ca-certificates"]


def java_major() -> int:
    """Return the major version of the machine's Java, which cannot run a newer compiler's classes."""
    answer = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    match = re.search(r'version "(\d+)', answer)
    return int(match.group(1)) if match else 17


def install_s3_server() -> None:
    """Compile versitygw, an S3 server in Go whose conditional writes hold under races."""
    if VERSITYGW.exists():
        return
    VERSITYGW.parent.mkdir(parents=True, exist_ok=True)
    compiler = go.find_go(TOOLS)
    print_progress(f"compiling versitygw {VERSITYGW_VERSION} with {Path(compiler)}")
    module = f"github.com/versity/versitygw/cmd/versitygw@{VERSITYGW_VERSION}"
    go.run_go(compiler, "install", "-trimpath", "-ldflags=-s -w", module, folder=TOOLS, GOBIN=str(VERSITYGW.parent))
    (VERSITYGW.parent / "versitygw").rename(VERSITYGW)


def install_rest_catalog() -> None:
    """Fetch the jars of Iceberg's REST fixture and compile its start class."""
    if is_stamped(ICEBERG_REST):
        return
    print_progress("fetching Iceberg's REST catalog")
    shutil.rmtree(ICEBERG_REST, ignore_errors=True)
    jars, classes = ICEBERG_REST / "lib", ICEBERG_REST / "classes"
    classes.mkdir(parents=True)
    run(copy_dependencies(HERE / "pom.xml", jars))
    run(["javac", "--release", "17", "-cp", f"{jars}/*", "-d", str(classes), str(HERE / "IcebergRest.java")])
    (ICEBERG_REST / ".stamp").write_text(recipe())


def install_kafka() -> None:
    """Fetch the jars of Kafka, Kafka Connect and Debezium."""
    if not kafka_jars.is_installed():
        print_progress("fetching Kafka, Kafka Connect and Debezium")
        kafka_jars.install(run)


def install_schema_registry() -> None:
    """Fetch Apicurio Registry and its converter for Kafka Connect."""
    if not registry_jars.is_installed():
        print_progress("fetching the schema registry")
        registry_jars.install(run)


def install_flink() -> None:
    """Make the environment of Flink, the writer of tables for the tests of conversions."""
    if not flink.is_installed():
        print_progress("fetching Flink")
        flink.install(run)


def install_mysql() -> None:
    """Fetch MySQL's server, as Debian may lack it."""
    if not mysql_packages.is_installed():
        print_progress("fetching MySQL")
        mysql_packages.install(run)


def install_glue() -> None:
    """Make the environment of moto, a simulation of AWS Glue."""
    if not MOTO.is_installed():
        print_progress("fetching moto")
        MOTO.install(run)


def install_hive() -> None:
    """Fetch Hive's metastore."""
    if not HIVE.is_installed():
        print_progress("fetching the Hive metastore")
        HIVE.install(run)


def install_nessie() -> None:
    """Fetch Nessie and a Java for it."""
    if not NESSIE.is_installed():
        print_progress("fetching Nessie")
        NESSIE.install(run)


def install_trino() -> None:
    """Fetch Trino and a Java for it."""
    if not TRINO.is_installed():
        print_progress("fetching Trino")
        TRINO.install(run)


def install_clickhouse() -> None:
    """Make the environment of ClickHouse."""
    if not CLICKHOUSE.is_installed():
        print_progress("fetching ClickHouse")
        CLICKHOUSE.install(run)


def install_httpfs() -> None:
    """Fetch DuckDB's extension for HTTP."""
    if not HTTPFS.is_installed():
        print_progress("fetching DuckDB's HTTP")
        HTTPFS.install(run)


def install_dbt() -> None:
    """Make the environment of dbt."""
    if not DBT.is_installed():
        print_progress("fetching dbt")
        DBT.install(run)


def install_cosmos() -> None:
    """Make the environment of Cosmos."""
    if not COSMOS.is_installed():
        print_progress("fetching Cosmos")
        COSMOS.install(run)


def is_stamped(folder: Path) -> bool:
    """Return whether the folder was made from the current pom and source.

    :param folder: the folder of the REST catalog
    """
    stamp = folder / ".stamp"
    return stamp.exists() and stamp.read_text() == recipe()


def recipe() -> str:
    """Return a hash of the inputs of the REST catalog."""
    return hashlib.sha256((HERE / "pom.xml").read_bytes() + (HERE / "IcebergRest.java").read_bytes()).hexdigest()


def run(command: Sequence[str]) -> None:
    """Run a program.

    :param command: program and arguments
    :raises ServiceError: if it fails; the message contains its output
    """
    # two Maven processes must not fill its repository at the same time
    with _one_maven if command[0] == "mvn" else nullcontext():
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ServiceError(f"{command[0]} failed: {(done.stdout + done.stderr)[-3000:]}")


if __name__ == "__main__":
    main(sys.argv[1:])
