"""MySQL's server for a Debian without it: packages of Debian's unstable, unpacked into a separate folder.

Nothing is installed. The server uses the libraries of its packages, including the C library, through their loader.
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
#: the parts of the packages that the server needs
_PARTS = ("usr/sbin/mysqld", "usr/lib", "usr/lib64", "usr/share/mysql")
_DEPENDS = re.compile(r" [ |](?:Pre)?Depends: ([^<\s]+)$")
_ONLY = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]


def is_installed() -> bool:
    """Return whether the server of the current recipe exists."""
    stamp = FOLDER / ".stamp"
    return stamp.exists() and stamp.read_text() == recipe()


def recipe() -> str:
    """Return the server's version and source."""
    return " ".join((PACKAGE, SOURCE, *_PARTS))


def install(run: Callable[[Sequence[str]], None]) -> None:
    """Fetch the server and its libraries and check that it starts.

    :param run: runs a program, raising an error if it fails
    :raises ServiceError: if the system is not Debian, or its unstable has no working server
    """
    if shutil.which("apt-get") is None or not KEYS.exists():
        raise ServiceError(f"Cannot fetch MySQL: apt-get or {KEYS} is missing")
    scratch = FOLDER.with_name(f"{FOLDER.name}.new")
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
    shutil.rmtree(FOLDER, ignore_errors=True)
    for part in (name for name in _PARTS if (scratch / "root" / name).exists()):
        (FOLDER / part).parent.mkdir(parents=True, exist_ok=True)
        (scratch / "root" / part).rename(FOLDER / part)
    shutil.rmtree(scratch)
    run([*server_command(), "--version"])
    (FOLDER / ".stamp").write_text(recipe())


def fetch(run: Callable[[Sequence[str]], None], scratch: Path) -> None:
    """Fetch the packages and unpack them into ``scratch/root``.

    :param run: runs a program, raising an error if it fails
    :raises ServiceError: if the package or one of its libraries is not available
    """
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
    """Return the options that restrict apt to the packages of the folder's ``sources.list``.

    :param folder: also the folder of its lists
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
    """Return the server's program with the options that locate its parts.

    :raises ServiceError: if it is missing
    """
    loader = next(iter(sorted((FOLDER / "usr").glob("lib*/ld-linux*.so.*"))), None)
    if loader is None:
        raise ServiceError("MySQL is missing. Run python -m local_services.install")
    libraries = sorted({str(path.parent) for path in (FOLDER / "usr" / "lib").rglob("libc.so.6")})
    own = [str(path) for path in (FOLDER / "usr" / "lib" / "mysql").glob("private")]
    share = FOLDER / "usr" / "share" / "mysql"
    return [
        *(str(loader), "--library-path", os.pathsep.join([*libraries, *own]), str(FOLDER / "usr" / "sbin" / "mysqld")),
        *("--no-defaults", f"--basedir={FOLDER}/usr", f"--plugin-dir={FOLDER}/usr/lib/mysql/plugin"),
        *(f"--lc-messages-dir={share}", f"--character-sets-dir={share}/charsets"),
    ]
