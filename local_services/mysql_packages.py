"""MySQL's server for a Debian that has none: packages of Debian's unstable, unpacked into a folder of their own.

Nothing is installed. The server runs on the libraries that come with it, the C library too, through their own loader.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from local_services.paths import TOOLS, program_folder
from local_services.process import ServiceError

PACKAGE = "mysql-server-core"
SOURCE = "deb [signed-by={keys}] http://deb.debian.org/debian sid main\n"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FOLDER = program_folder(TOOLS / "mysql")
#: what the server needs of all that the packages hold
_KEPT = ("usr/sbin/mysqld", "usr/lib", "usr/lib64", "usr/share/mysql")
_DEPENDS = re.compile(r" [ |](?:Pre)?Depends: ([^<\s]+)$")
_ONLY = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]


def is_installed() -> bool:
    """Return whether the server is there, fetched as it is asked for now."""
    stamp = FOLDER / ".stamp"
    return stamp.exists() and stamp.read_text() == recipe()


def recipe() -> str:
    """Return what the server is chosen by."""
    return " ".join((PACKAGE, SOURCE, *_KEPT))


def install(run: Callable[[Sequence[str]], None]) -> None:
    """Fetch the server and its libraries and try whether it starts.

    :param run: runs a program, raising an error if it fails
    :raises ServiceError: if this is no Debian, or its unstable has no server that runs
    """
    if shutil.which("apt-get") is None or not KEYS.exists():
        raise ServiceError(f"MySQL for the service tests is fetched by apt-get with {KEYS}, and one of them is missing")
    scratch = FOLDER.with_name(f"{FOLDER.name}.new")
    for attempt in (1, 2):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        try:
            fetch(run, scratch)
            break
        except ServiceError:
            # the mirror's packages may have changed between its list and them
            if attempt == 2:
                raise
    shutil.rmtree(FOLDER, ignore_errors=True)
    for kept in (name for name in _KEPT if (scratch / "root" / name).exists()):
        (FOLDER / kept).parent.mkdir(parents=True, exist_ok=True)
        (scratch / "root" / kept).rename(FOLDER / kept)
    shutil.rmtree(scratch)
    run([*server_command(), "--version"])
    (FOLDER / ".stamp").write_text(recipe())


def fetch(run: Callable[[Sequence[str]], None], scratch: Path) -> None:
    """Fetch the packages and unpack them into ``scratch/root``.

    :param run: runs a program, raising an error if it fails
    :raises ServiceError: if there is no such package now, or some library of it cannot be had
    """
    for folder in ("cache/archives/partial", "lists/partial", "packages"):
        (scratch / folder).mkdir(parents=True)
    (scratch / "sources.list").write_text(SOURCE.format(keys=KEYS))
    options = apt_options(scratch)
    run(["apt-get", *options, "-qq", "update"])
    command = ["apt-cache", *options, "depends", "--recurse", *_ONLY, PACKAGE]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise ServiceError(f"Debian's unstable has no {PACKAGE} now: {result.stderr.strip()[-1000:]}")
    packages = scratch / "packages"
    # apt-get writes into the current folder
    run(["env", "-C", str(packages), "apt-get", *options, "-qq", "download", *needed(result.stdout.splitlines())])
    for package in sorted(packages.iterdir()):
        run(["dpkg-deb", "-x", str(package), str(scratch / "root")])


def apt_options(folder: Path) -> list[str]:
    """Return options under which apt knows only the packages of the folder's ``sources.list``.

    :param folder: where it keeps its lists, too
    """
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
        # root's folders may be closed to the account that apt would change to
        "APT::Sandbox::User": "root",
    }
    return [word for name, value in given.items() for word in ("-o", f"{name}={value}")]


def needed(lines: Iterable[str]) -> list[str]:
    """Return the server's package and the packages that it links, in order.

    Dependencies on virtual packages are left out: the server has one, on an interpreter for scripts that are not used
    here.

    :param lines: output of ``apt-cache depends --recurse``
    """
    depends: dict[str, list[str]] = {}
    package = ""
    for line in lines:
        found = _DEPENDS.match(line)
        if found:
            depends[package].append(found.group(1))
        elif line[:1].strip():
            package = line.strip()
            depends.setdefault(package, [])
    names = [PACKAGE]
    for name in names:
        names += [other for other in dict.fromkeys(depends.get(name, ())) if other not in names]
    return names


def server_command() -> list[str]:
    """Return the server's program with all that tells it where its parts are.

    :raises ServiceError: if it is not there
    """
    loader = next(iter(sorted((FOLDER / "usr").glob("lib*/ld-linux*.so.*"))), None)
    if loader is None:
        raise ServiceError("MySQL is missing: python -m local_services.install")
    libraries = sorted({str(found.parent) for found in (FOLDER / "usr" / "lib").rglob("libc.so.6")})
    own = [str(found) for found in (FOLDER / "usr" / "lib" / "mysql").glob("private")]
    share = FOLDER / "usr" / "share" / "mysql"
    return [
        *(str(loader), "--library-path", os.pathsep.join([*libraries, *own]), str(FOLDER / "usr" / "sbin" / "mysqld")),
        *("--no-defaults", f"--basedir={FOLDER}/usr", f"--plugin-dir={FOLDER}/usr/lib/mysql/plugin"),
        *(f"--lc-messages-dir={share}", f"--character-sets-dir={share}/charsets"),
    ]
