"""Installing the service tools: missing ones are named, an old Go fetches a newer one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from local_services import apt, go, install, mariadb
from local_services.process import ServiceError
from local_services.tools import Tool, digest


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.19.8 linux/amd64", (1, 19)),
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version devel +abc linux/amd64", (0, 0)),
    ],
)
def test_go_version_is_compared_as_numbers(text: str, version: tuple[int, int]) -> None:
    assert go.version_of(text) == version
    assert (go.version_of(text) >= go.OLDEST) is (version == (1, 26))


def test_an_old_go_fetches_a_toolchain_and_makes_it_executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "module"
    programs = [module / "bin" / "go", module / "pkg" / "tool" / "linux_amd64" / "compile"]
    for program in programs:
        program.parent.mkdir(parents=True)
        program.write_text("")
    all_arguments: list[str] = []

    def run_go(program: str, *arguments: str, folder: Path, **extra: str) -> str:
        all_arguments.extend(arguments)
        return "go version go1.19.8 linux/amd64" if arguments == ("version",) else json.dumps({"Dir": str(module)})

    monkeypatch.setattr(go, "run_go", run_go)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert go.find_go(tmp_path) == str(programs[0])
    assert all_arguments[-1].startswith(f"golang.org/toolchain@v0.0.1-{go.TOOLCHAIN}.linux-")
    assert all(program.stat().st_mode & 0o111 for program in programs)


def test_a_failing_go_build_shows_its_output(tmp_path: Path) -> None:
    fake = tmp_path / "go"
    fake.write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(ServiceError, match="go mod download failed: no network"):
        go.run_go(str(fake), "mod", "download", folder=tmp_path)


def test_without_root_the_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "VERSITYGW", tmp_path / "absent")
    monkeypatch.setattr(Tool, "is_installed", lambda tool: False)
    monkeypatch.setattr(install, "java_major", lambda: 17)
    monkeypatch.setattr(mariadb, "is_installed", lambda: False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    expected = "apt-get install mariadb-server chromium fonts-liberation golang-go ca-certificates maven openjdk-17"
    with pytest.raises(ServiceError, match=expected):
        install.install_packages(install.missing_packages())


def test_nothing_is_installed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "versitygw"
    program.touch()
    monkeypatch.setattr(mariadb, "is_installed", lambda: True)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(Tool, "is_installed", lambda tool: True)
    monkeypatch.setattr(install, "VERSITYGW", program)

    def refuse(*arguments: object, **rest: object) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr(subprocess, "run", refuse)
    install.main()


def test_packages_are_installed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(install, "install_packages", lambda _: seen.append("packages"))
    monkeypatch.setattr(install, "install_s3_server", lambda: seen.append("S3"))
    monkeypatch.setattr(install, "install_tool", lambda tool: seen.append(tool.title))
    install.main(["--packages"])
    assert seen == ["packages"]
    install.main()
    assert seen[1] == "packages" and len(seen) == 10
    install.main(["--soak"])
    assert {"Nessie", "Trino", "ClickHouse", "DuckDB's HTTP", "dbt", "Cosmos"} <= set(seen[10:])
    assert len(seen) == 25


def test_a_changed_pom_is_installed_again(tmp_path: Path) -> None:
    pom = tmp_path / "pom.xml"
    tools = []
    for version in ("1", "2"):
        pom.write_text(version)
        tools.append(Tool("a tool", tmp_path / "tool", digest(pom), lambda _, folder: folder.mkdir()))
    tools[0].install(install.run)
    assert [tool.is_installed() for tool in tools] == [True, False]
    with pytest.raises(ServiceError, match="a tool is missing. Run python -m local_services.install$"):
        tools[1].check()


def test_daemons_are_forbidden_only_while_packages_are_installed(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    with apt.no_daemons(policy):
        assert subprocess.run([str(policy)]).returncode == 101
    assert not policy.exists()
    policy.write_text("the machine's own")
    with apt.no_daemons(policy):
        assert policy.read_text() == "the machine's own"
    assert policy.exists()
