"""Fetching MySQL's server from another Debian."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from local_services import mysql_packages, paths
from local_services.paths import Account
from local_services.process import ServiceError

#: output of apt-cache
DEPENDS = """mysql-server-core
  Depends: libc6
 |Depends: libssl3
  Depends: libssl3t64
  Depends: <perl:any>
    perl
libc6
  Depends: libgcc-s1
libgcc-s1
  PreDepends: gcc-base
  Depends: libc6
gcc-base
libssl3
libssl3t64
<perl:any>
perl
  Depends: perl-base
perl-base
  PreDepends: libcrypt1
"""


def test_packages_are_those_that_the_server_links() -> None:
    packages = mysql_packages.needed(DEPENDS.splitlines())
    assert packages == ["mysql-server-core", "libc6", "libssl3", "libssl3t64", "libgcc-s1", "gcc-base"]


def test_a_mirror_that_changes_meanwhile_is_queried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mysql = replace(mysql_packages.MYSQL, folder=tmp_path / "mysql")
    monkeypatch.setattr(mysql_packages, "MYSQL", mysql)
    monkeypatch.setattr(mysql_packages, "KEYS", tmp_path)
    commands: list[str] = []

    def run(command: Sequence[str]) -> None:
        commands.append(command[-1])
        raise ServiceError("404 Not Found")

    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(ServiceError, match="404"):
        mysql.install(run)
    assert commands == ["update", "update"] and not mysql.is_installed()
    with pytest.raises(ServiceError, match="MySQL is missing. Run python -m local_services.install"):
        mysql_packages.server_command()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ServiceError, match="Cannot fetch MySQL"):
        mysql.install(run)


def test_programs_are_installed_where_their_account_may_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(paths, "unprivileged_account", lambda: Account("stranger", 4711, 4711))
    assert paths.program_folder(closed / "tools" / "mysql") == paths.SYSTEM_TOOLS / "mysql"
    monkeypatch.setattr(paths, "unprivileged_account", lambda: None)
    assert paths.program_folder(closed / "tools" / "mysql") == closed / "tools" / "mysql"
