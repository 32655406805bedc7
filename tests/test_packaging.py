"""Every package is listed, the lock matches the pins, the wheel contains both roots and nothing else."""

from __future__ import annotations

import configparser
import importlib
import os
import re
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import pytest

from airflow_provider_lakecdc.submit.platforms import PLATFORMS
from local_services.setup_program import setup_program

ROOT = Path(__file__).resolve().parent.parent
PROVIDER = "airflow_provider_lakecdc"
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()


@pytest.fixture(scope="module")
def setup_cfg() -> configparser.ConfigParser:
    """Read the project's setup.cfg."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


@pytest.fixture(scope="module")
def bootstrap() -> ModuleType:
    """Load the set-up script as a module."""
    return setup_program()


def folder_of(package: str) -> Path:
    """Return where a package is in the checkout, as ``package_dir`` maps it."""
    if package == "lakecdc.jobs":
        return ROOT / "spark_jobs"
    top = ROOT / "spark_jobs" if package.split(".")[0] == "lakecdc" else ROOT
    return top.joinpath(*package.split("."))


def packages_on_disk() -> set[str]:
    """Return the packages below the two roots: folders with Python files and their parents."""
    names = {"lakecdc.jobs"}
    for root, base in ((ROOT / PROVIDER, ROOT), (ROOT / "spark_jobs" / "lakecdc", ROOT / "spark_jobs")):
        for module in root.rglob("*.py"):
            names.add(".".join(module.parent.relative_to(base).parts))
    return names


def locked() -> dict[str, set[str]]:
    """Return the versions of each distribution in the lock; some differ by Python version."""
    versions: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE):
        versions.setdefault(name, set()).add(version)
    return versions


def test_every_package_is_listed(setup_cfg: configparser.ConfigParser) -> None:
    listed = setup_cfg["options"]["packages"].split()
    assert sorted(listed) == sorted(packages_on_disk())


def test_every_package_has_an_init(setup_cfg: configparser.ConfigParser) -> None:
    listed = setup_cfg["options"]["packages"].split()
    assert [name for name in listed if not (folder_of(name) / "__init__.py").exists()] == []


def test_other_files_of_packages_are_shipped(setup_cfg: configparser.ConfigParser) -> None:
    """Check templates and schemas, which work in the checkout but are missing in the wheel unless listed."""
    data = setup_cfg["options.package_data"] if setup_cfg.has_section("options.package_data") else {}
    missing = []
    for package in setup_cfg["options"]["packages"].split():
        patterns = f"{data.get(package, '')} {data.get('*', '')}".split()
        for path in folder_of(package).iterdir():
            is_data = path.is_file() and path.suffix not in {".py", ".pyc"}
            if is_data and not any(fnmatch(path.name, pattern) for pattern in patterns):
                missing.append(str(path.relative_to(ROOT)))
    assert missing == []


def test_entry_point_gives_provider_info(setup_cfg: configparser.ConfigParser) -> None:
    line = setup_cfg["options.entry_points"]["apache_airflow_provider"].strip()
    name, target = (part.strip() for part in line.split("="))
    module, function = target.split(":")
    info = getattr(importlib.import_module(module), function)()
    assert name == "provider_info"
    assert info["package-name"] == setup_cfg["metadata"]["name"]


def test_the_lock_contains_every_pin() -> None:
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / ".ci" / "pins.txt").read_text(), re.MULTILINE))
    versions = locked()
    assert pins
    assert {name: versions.get(name) for name in pins} == {name: {version} for name, version in pins.items()}
    assert all(version < "3" for version in versions["pandas"])


def test_the_lock_gives_both_sparks_the_same_version() -> None:
    versions = locked()
    assert versions["pyspark"] == versions["pyspark-client"]


def test_the_lock_names_no_index() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"^\s*--(extra-)?index-url|^\s*--find-links|https?://", text, re.MULTILINE)
    distributions = re.findall(r"^[\w.-]+==.*\\\n    --hash=sha256:", text, re.MULTILINE)
    assert len(distributions) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE))


def test_extras_are_in_the_lock(setup_cfg: configparser.ConfigParser) -> None:
    # fakes replace the platforms' providers: Google's needs another tenacity than Airflow's constraints
    platforms = {platform.extra for platform in PLATFORMS.values()}
    extras = [text for name, text in setup_cfg["options.extras_require"].items() if name not in platforms]
    lines = [setup_cfg["options"]["install_requires"], *extras]
    names = {
        re.split(r"[\[=<>;]", line)[0].strip().lower() for text in lines for line in text.split("\n") if line.strip()
    }
    assert names - set(locked()) == set()


def test_setup_fetches_the_jars_of_sessions(bootstrap: ModuleType) -> None:
    from lakecdc.contract.runtime import packages, source_packages
    from lakecdc.contract.sources.jdbc import JdbcSource
    from lakecdc.contract.sources.kafka import KafkaSource

    local = packages({"type": "sql", "uri": "sqlite:////tmp/catalog.db", "warehouse": "file:///tmp/warehouse"})
    assert sorted(local) == sorted(bootstrap.JARS)
    on_s3 = packages({"type": "rest", "uri": "http://127.0.0.1:1", "warehouse": "s3://warehouse/"})
    assert set(on_s3) <= {*bootstrap.JARS, *bootstrap.SERVICE_JARS}
    assert source_packages(JdbcSource("jdbc:postgresql://localhost/", "changed")) == [*bootstrap.SOURCE_JARS]
    kafka = KafkaSource("b:9092", "debezium-json", topics=("t",), reader="spark")
    assert {*on_s3, *source_packages(kafka)} == {*bootstrap.JARS, *bootstrap.SERVICE_JARS} - {local[-1]}


def test_setup_and_check_accept_the_same_versions_of_java(bootstrap: ModuleType) -> None:
    from lakecdc.contract import runtime

    assert (bootstrap.JAVA_OLDEST, bootstrap.JAVA_NEWEST) == (runtime.JAVA_OLDEST, runtime.JAVA_NEWEST)


def test_jars_are_in_javas_folder_whatever_the_home_variable_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from local_services import spark_classes

    monkeypatch.setenv("HOME", str(tmp_path))
    settings = subprocess.run(["java", "-XshowSettings:properties", "-version"], capture_output=True, text=True).stderr
    home = re.search(r"user\.home = (.*)", settings)
    assert home
    jars = spark_classes.environment(tmp_path)["SPARK_DIST_CLASSPATH"].split(os.pathsep)
    assert jars and all(jar.startswith(f"{home[1]}/.ivy") for jar in jars)


@pytest.mark.parametrize(
    "page",
    [
        '{"files": [{"url": "../f/uv.whl", "hashes": {"sha256": "%s"}}]}' % ("a" * 64),
        '<html><a href="../f/uv.whl#sha256=%s">uv.whl</a></html>' % ("a" * 64),
    ],
)
def test_setup_reads_both_forms_of_an_index(bootstrap: ModuleType, page: str) -> None:
    assert bootstrap.listed_files(page) == [("../f/uv.whl", "a" * 64)]


def test_setup_uses_the_machines_index(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(bootstrap, "pip_setting", lambda: None)
    assert bootstrap.package_index() == bootstrap.DEFAULT_INDEX
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.invalid/simple")
    assert bootstrap.package_index() == "https://mirror.invalid/simple"


@pytest.mark.parametrize(
    ("answer", "major"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_401"', 8), ("no such thing", None)],
)
def test_setup_reads_javas_version(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, major: int | None
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{answer}\nEND\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert bootstrap.java_major() == major


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, bootstrap: ModuleType) -> Path:
    """Build the wheel like ``make wheel``."""
    built: Path = bootstrap.build_wheel(bootstrap.find_uv(), tmp_path_factory.mktemp("wheel"))
    return built


def test_same_sources_give_the_same_wheel(wheel: Path, tmp_path: Path, bootstrap: ModuleType) -> None:
    before = os.umask(0o077)
    try:
        again = bootstrap.build_wheel(bootstrap.find_uv(), tmp_path)
    finally:
        os.umask(before)
    assert again.read_bytes() == wheel.read_bytes()


def test_every_named_version_is_that_of_the_topmost_release(setup_cfg: configparser.ConfigParser) -> None:
    version = setup_cfg["metadata"]["version"]
    releases = re.findall(r"^## \[(.+)\] - (not released yet|\d{4}-\d\d-\d\d)$", CHANGELOG, re.MULTILINE)
    assert len(releases) == len(re.findall("^## ", CHANGELOG, re.MULTILINE))
    assert releases[0][0] == version
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docker").glob("*")]
    named = [
        number
        for page in pages
        if page.is_file()
        for number in re.findall(r"airflow-spark:([\d.]+\d)", page.read_text())
    ]
    assert named and {*named} == {version}


def test_wheel_is_a_release_at_its_tag_and_a_development_version_elsewhere(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    setup, who = tmp_path / "setup.cfg", ("-c", "user.name=a", "-c", "user.email=a@example.com")

    def git(*arguments: str) -> None:
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True)

    setup.write_text("[metadata]\nversion = 0.2.0\n")
    assert bootstrap.wheel_version() == "0.2.0.dev0"
    git("init", "-q")
    with pytest.raises(SystemExit, match="git cannot determine the version: fatal"):
        bootstrap.wheel_version()
    git("add", "setup.cfg")
    git("commit", "-qm", "a")
    assert re.fullmatch(r"0\.2\.0\.dev0\+g[0-9a-f]{8}", bootstrap.wheel_version())
    git("tag", "v0.2.0")
    assert bootstrap.wheel_version() == "0.2.0"
    setup.write_text("[metadata]\nversion = 0.3.0\n")
    assert bootstrap.wheel_version().startswith("0.3.0.dev0+g")
    git("commit", "-qam", "b")
    assert bootstrap.wheel_version().startswith("0.3.0.dev1+g")
    git("tag", "v0.2.1")
    with pytest.raises(SystemExit, match=r"the tag is v0\.2\.1, but the version in setup\.cfg is 0\.3\.0"):
        bootstrap.wheel_version()
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    (unpacked / "setup.cfg").write_text(setup.read_text())
    monkeypatch.setattr(bootstrap, "ROOT", unpacked)
    assert bootstrap.wheel_version() == "0.3.0.dev0"
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", str(unpacked))
    with pytest.raises(SystemExit, match="git is needed"):
        bootstrap.wheel_version()


def test_wheel_contains_both_roots_and_nothing_else(wheel: Path, setup_cfg: configparser.ConfigParser) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.rpartition("/")[0].replace("/", ".") for name in names if ".dist-info" not in name}
    data = {
        f"{package}.{pattern.rpartition('/')[0]}"
        for package, patterns in setup_cfg["options.package_data"].items()
        for pattern in patterns.split()
    }
    assert folders == {*setup_cfg["options"]["packages"].split(), *data}
    scripts = {f"lakecdc/jobs/{path.name}" for path in (ROOT / "spark_jobs").glob("*.py")}
    assert scripts <= set(names)


def test_wheel_installs_into_a_clean_environment(wheel: Path, tmp_path: Path, bootstrap: ModuleType) -> None:
    uv, python = bootstrap.find_uv(), tmp_path / "env" / "bin" / "python"
    environment = {"HOME": str(tmp_path), "AIRFLOW_HOME": str(tmp_path / "airflow"), "PATH": os.environ["PATH"]}
    cached = {name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_", "SSL_", "XDG_"))}
    cache = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip()
    installing = {**cached, **environment, "UV_CACHE_DIR": cache, "UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(
        "\n".join(re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    )
    subprocess.run(
        [uv, "venv", "-q", "--python", sys.executable, str(python.parent.parent)], check=True, env=installing
    )
    install = [uv, "pip", "install", "-q", "--python", str(python), "-c", str(constraints), str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, env=installing)
    assert done.returncode == 0, done.stderr
    listing = [str(python.with_name("airflow")), "providers", "list", "-o", "plain"]
    shown = subprocess.run(listing, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert "airflow-provider-lakecdc" in shown.stdout, shown.stderr
    check = "import lakecdc.jobs, airflow_provider_lakecdc.operators.ingest, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([str(python), "-c", check], env=environment, cwd=tmp_path).returncode == 0
