"""Checks of this machine as a worker: Python packages, Java, Spark and its jars."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.submit.launcher import SparkTarget, submit_binary
from lakecdc.contract.findings import Finding, run_check
from lakecdc.contract.runtime import ICEBERG_VERSION, JAVA_NEWEST, JAVA_OLDEST, SPARK_MINOR

MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
_PROVIDER = "airflow-provider-lakecdc"
_PACKAGES = (
    "apache-airflow",
    "apache-airflow-providers-apache-spark",
    "apache-airflow-providers-apache-iceberg",
    "pyiceberg",
)
_SECONDS = 5


def packages() -> Finding:
    """Check the packages in the worker's Python."""
    versions = {name: _version(name) for name in (_PROVIDER, *_PACKAGES)}
    text = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    # a checkout on the path has no version
    missing = [name for name in _PACKAGES if versions[name] is None]
    if missing:
        remedy = f"Run {sys.executable} -m pip install {_PROVIDER}."
        return Finding("packages", "fail", f"{', '.join(missing)} is missing; installed: {text}", remedy)
    return Finding("packages", "ok", text)


def java() -> Finding:
    """Check the Java that spark-submit would start."""
    return run_check("java", _java)


def spark(target: SparkTarget) -> Iterator[Finding]:
    """Check spark-submit and its Spark."""
    submit = run_check("spark-submit", lambda: submit_binary(target) or shutil.which(target.binary) or "")
    yield submit
    yield _pyspark()
    if submit.state == "ok" and (version := _spark_version(submit.result)):
        yield _fitting(version)


def jars(coordinates: Sequence[str], conf: Mapping[str, str], repositories: str | None) -> Finding:
    """Check whether Spark has the jars of jobs, or can fetch them from Maven Central or further repositories."""
    # Java takes the home folder from the account, not from HOME
    ivy = Path(conf.get("spark.jars.ivy") or Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ivy2.5.2")
    missing = [each for each in coordinates if not _is_cached(ivy, each)]
    if not missing:
        return Finding("jars", "ok", f"{', '.join(coordinates)} in {ivy}")
    named = [url.strip().rstrip("/") for url in (repositories or "").split(",") if url.strip()]
    away = [each for each in missing if not any(_has(url, each) for url in (*named, MAVEN_CENTRAL))]
    if not away:
        return Finding("jars", "ok", f"{', '.join(missing)} will be fetched by the first job, once")
    places = " or ".join((*named, MAVEN_CENTRAL))
    return Finding(
        "jars",
        "warn",
        f"{', '.join(away)} is not in {ivy}, and this machine cannot fetch it from {places}",
        'Let workers reach Maven Central, name a mirror in "spark": {"repositories": …} of the configuration, or copy '
        "the folder from a machine that has it (docs/start/getting-started.md, step 3).",
    )


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    binary = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    remedy = f"Install Java 17 or 21, such as openjdk-17-jre-headless, {'or correct' if home else 'or set'} JAVA_HOME."
    if binary is None:
        raise JobBadInputError(f"Cannot find java {f'in {home}' if home else 'on the path'}.", hint=remedy)
    output = subprocess.run([binary, "-version"], capture_output=True, text=True, timeout=_SECONDS).stderr
    version = re.search(r'version "(\d++)([^"]*)"', output)
    if version is None or not JAVA_OLDEST <= int(version[1]) <= JAVA_NEWEST:
        what = f"Java {version[1]}" if version else "a Java of unknown version"
        raise JobBadInputError(f"{binary} is {what}; Spark needs {JAVA_OLDEST} to {JAVA_NEWEST}.", hint=remedy)
    return f"{version[1]}{version[2]} at {binary}"


def _pyspark() -> Finding:
    """Check that the two distributions that own the same files have one version."""
    versions = {name: version for name in ("pyspark", "pyspark-client") if (version := _version(name))}
    text = ", ".join(f"{name} {version}" for name, version in versions.items())
    if len({*versions.values()}) > 1:
        remedy = "Install both in the same version, with --force-reinstall: they overwrite each other's files."
        return Finding("pyspark", "fail", text, remedy)
    return Finding("pyspark", "ok", text or "not in this Python; Spark brings its own")


def _fitting(version: str) -> Finding:
    if version.startswith(f"{SPARK_MINOR}."):
        return Finding("spark", "ok", f"{version}, for which Iceberg {ICEBERG_VERSION} has a runtime")
    remedy = f"Install Spark {SPARK_MINOR}, such as pip install '{_PROVIDER}[spark]'."
    return Finding("spark", "fail", f"{version}; Iceberg {ICEBERG_VERSION} runs in Spark {SPARK_MINOR} here", remedy)


def _spark_version(submit: str) -> str | None:
    """Return the version in the jar names of a spark-submit's Spark, or None if unknown."""
    homes = [os.environ.get("SPARK_HOME"), str(Path(submit).resolve().parent.parent)]
    for home in filter(None, homes):
        for jar in Path(home, "jars").glob("spark-core_*.jar"):
            return jar.stem.partition("-core_")[2].partition("-")[2]
    return _version("pyspark")


def _is_cached(ivy: Path, coordinates: str) -> bool:
    group, name, version = coordinates.split(":")
    return (ivy / "cache" / group / name / "jars" / f"{name}-{version}.jar").exists()


def _has(repository: str, coordinates: str) -> bool:
    group, name, version = coordinates.split(":")
    url = f"{repository}/{group.replace('.', '/')}/{name}/{version}/{name}-{version}.jar"
    try:
        with urlopen(Request(url, method="HEAD"), timeout=_SECONDS) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError, ValueError):
        return False


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
