"""MySQL's server for a Debian without it: packages of Debian's unstable, unpacked into a separate folder.

Nothing is installed. The server uses the libraries of its packages, including the C library, through their loader.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from local_services.paths import TOOLS, program_folder
from local_services.process import ServiceError
from local_services.tools import Run, Tool

PACKAGE = "mysql-server-core"
SOURCE = "deb [signed-by={keys}] http://deb.debian.org/debian sid main\n"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: the parts of the packages that the server needs
_PARTS = ("usr/sbin/mysqld", "usr/lib", "usr/lib64", "usr/share/mysql")
_DEPENDS = re.compile(r" [ |](?:Pre)?Depends: ([^<\s]+)$")
_ONLY = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]


def _mysql(run: Run, folder: Path) -> None:
    """Fetch the server and its libraries and check that it starts."""
    if shutil.which("apt-get") is None or not KEYS.exists():
        raise ServiceError(f"Cannot fetch MySQL: apt-get or {KEYS} is missing")
    scratch = folder.with_name(f"{folder.name}.new")
    for attempt in (1, 2):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        try:
            fetch(run, scratch)
            break
        except ServiceError:
            # the mirror's packages may have changed since its list was fetched
            if attempt == 2:
                raise
    for part in (name for name in _PARTS if (scratch / "root" / name).exists()):
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        (scratch / "root" / part).rename(folder / part)
    shutil.rmtree(scratch)
    run([*server_command(), "--version"])


MYSQL = Tool("MySQL", program_folder(TOOLS / "mysql"), " ".join((PACKAGE, SOURCE, *_PARTS)), _mysql)


def fetch(run: Run, scratch: Path) -> None:
    """Fetch the packages and unpack them into ``scratch/root``."""
    for folder in ("cache/archives/partial", "lists/partial", "packages"):
        (scratch / folder).mkdir(parents=True)
    (scratch / "sources.list").write_text(SOURCE.format(keys=KEYS))
    options = apt_options(scratch)
    run(["apt-get", *options, "-qq", "update"])
    command = ["apt-cache", *options, "depends", "--recurse", *_ONLY, PACKAGE]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise ServiceError(f"Debian's unstable does not have {PACKAGE} now: {result.stderr.strip()[-1000:]}")
    packages = scratch / "packages"
    # apt-get writes into the current folder
    run(["env", "-C", str(packages), "apt-get", *options, "-qq", "download", *needed(result.stdout.splitlines())])
    for package in sorted(packages.iterdir()):
        run(["dpkg-deb", "-x", str(package), str(scratch / "root")])


def apt_options(folder: Path) -> list[str]:
    """Return the options that restrict apt to the packages of the folder's ``sources.list``, and to its lists."""
    given = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferences": "-",
        "Dir::Etc::preferencesparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": folder / "cache",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "APT::Update::Error-Mode": "any",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        # root's folders may be closed to the account that apt switches to
        "APT::Sandbox::User": "root",
    }
    return [word for name, value in given.items() for word in ("-o", f"{name}={value}")]


def needed(lines: Iterable[str]) -> list[str]:
    """Return the server's package and the packages that it links, in order.

    Dependencies on virtual packages are omitted: the only one is an interpreter for scripts that are not used here.

    :param lines: output of ``apt-cache depends --recurse``
    """
    depends: dict[str, list[str]] = {}
    package = ""
    for line in lines:
        match = _DEPENDS.match(line)
        if match:
            depends[package].append(match.group(1))
        elif line[:1].strip():
            package = line.strip()
            depends.setdefault(package, [])
    names = [PACKAGE]
    for name in names:
        names += [other for other in dict.fromkeys(depends.get(name, ())) if other not in names]
    return names


def server_command() -> list[str]:
    """Return the server's program with the options that locate its parts."""
    folder = MYSQL.folder
    loader = next(iter(sorted((folder / "usr").glob("lib*/ld-linux*.so.*"))), None)
    if loader is None:
        raise ServiceError("MySQL is missing. Run python -m local_services.install")
    libraries = sorted({str(path.parent) for path in (folder / "usr" / "lib").rglob("libc.so.6")})
    own = [str(path) for path in (folder / "usr" / "lib" / "mysql").glob("private")]
    share = folder / "usr" / "share" / "mysql"
    return [
        *(str(loader), "--library-path", os.pathsep.join([*libraries, *own]), str(folder / "usr" / "sbin" / "mysqld")),
        *("--no-defaults", f"--basedir={folder}/usr", f"--plugin-dir={folder}/usr/lib/mysql/plugin"),
        *(f"--lc-messages-dir={share}", f"--character-sets-dir={share}/charsets"),
    ]
