"""Install the tools of the service tests: S3, catalogs, Kafka, registry, Flink, MySQL, a browser.

Run as ``python -m local_services.install``; does nothing where everything is in place. ``--packages`` installs only the
distribution's packages, among which a Java compiler may bring another Java; ``--soak`` also installs Nessie, Trino,
ClickHouse, DuckDB's HTTP extension and dbt, 1.6 GB, for tests on demand.
"""

from __future__ import annotations

import argparse
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

from local_services import apt, go, mariadb
from local_services.catalog_tools import HIVE, ICEBERG_REST, MOTO, NESSIE
from local_services.flink import FLINK
from local_services.kafka_jars import KAFKA
from local_services.mysql_packages import MYSQL
from local_services.paths import TOOLS
from local_services.process import ServiceError
from local_services.reader_tools import CLICKHOUSE, COSMOS, DBT, HTTPFS, TRINO
from local_services.registry_jars import REGISTRY
from local_services.tools import Tool

VERSITYGW_VERSION = "v1.8.0"
VERSITYGW = TOOLS / "bin" / f"versitygw-{VERSITYGW_VERSION}"
_TOOLS = (FLINK, KAFKA, REGISTRY, ICEBERG_REST, MYSQL, MOTO, HIVE)
_SOAK_TOOLS = (NESSIE, TRINO, CLICKHOUSE, HTTPFS, DBT, COSMOS)
_one_maven = threading.Lock()


def main(arguments: Sequence[str] = ()) -> None:
    """Install everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", action="store_true", help="only the packages of the distribution")
    parser.add_argument("--soak", action="store_true", help="also what tests on demand need")
    options = parser.parse_args(arguments)
    install_packages(missing_packages())
    if options.packages:
        return
    # compile and download at the same time
    tools = (*_TOOLS, *(_SOAK_TOOLS if options.soak else ()))
    with ThreadPoolExecutor(len(tools) + 1) as pool:
        for done in [pool.submit(install_s3_server), *(pool.submit(install_tool, tool) for tool in tools)]:
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
    fetched = (tool.is_installed() for tool in (ICEBERG_REST, KAFKA, FLINK, REGISTRY, HIVE))
    if not all(fetched) and shutil.which("mvn") is None:
        missing.append("maven")
    if not (ICEBERG_REST.is_installed() and HIVE.is_installed()) and shutil.which("javac") is None:
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


def install_tool(tool: Tool) -> None:
    """Fetch a program, unless it is installed."""
    if not tool.is_installed():
        print_progress(f"fetching {tool.title}")
        tool.install(run)


def run(command: Sequence[str]) -> None:
    """Run a program; the error of one that fails contains its output."""
    # two Maven processes must not fill its repository at the same time
    with _one_maven if command[0] == "mvn" else nullcontext():
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ServiceError(f"{command[0]} failed: {(done.stdout + done.stderr)[-3000:]}")


if __name__ == "__main__":
    main(sys.argv[1:])
