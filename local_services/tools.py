"""Programs of the service tests in folders of their own: jars that Maven fetches, and Python environments."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from local_services.process import ServiceError
from local_services.setup_program import setup_program

#: runs a program, raising an error if it fails
Run = Callable[[Sequence[str]], None]
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Tool:
    """A program in its own folder.

    :param title: its name in messages.
    :param recipe: identifies its inputs, see :func:`digest`.
    :param make: builds it in the folder.
    :param option: installer option that includes it.
    """

    title: str
    folder: Path
    recipe: str
    make: Callable[[Run, Path], None]
    option: str = ""

    def is_installed(self) -> bool:
        """Return whether it is installed from the current recipe."""
        stamp = self.folder / ".stamp"
        return stamp.exists() and stamp.read_text() == self.recipe

    def install(self, run: Run) -> None:
        """Install it again."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.make(run, self.folder)
        (self.folder / ".stamp").write_text(self.recipe)

    def check(self) -> None:
        """Raise a :class:`ServiceError` if it is not installed."""
        if not self.is_installed():
            raise ServiceError(f"{self.title} is missing. Run python -m local_services.install {self.option}".rstrip())


def digest(*inputs: Path | str) -> str:
    """Return a hash of files' contents and texts."""
    parts = (each.read_bytes() if isinstance(each, Path) else each.encode() for each in inputs)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def make_environment(run: Run, home: Path, packages: Sequence[str]) -> None:
    """Create a Python environment of packages that conflict with the project's, with uv."""
    setup = setup_program()
    uv, index, trusted = setup.find_uv(), setup.package_index(), setup.trusted_certificates()
    environment = ["env", f"UV_DEFAULT_INDEX={index}", *([f"SSL_CERT_FILE={trusted}"] if trusted else [])]
    run([*environment, uv, "venv", "-q", "--python", sys.executable, str(home)])
    run([*environment, uv, "pip", "install", "-q", "--python", str(home / "bin" / "python"), *packages])


def copy_dependencies(pom: Path, folder: Path) -> list[str]:
    """Return the command that copies a pom's runtime dependencies into a folder."""
    return [*maven(pom), "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]


def maven(pom: Path | None = None) -> list[str]:
    """Return the command without goals, in batch mode without progress; its output still begins with a colour reset."""
    return ["mvn", "-B", "-ntp", "-q", "-Dstyle.color=never", *(["-f", str(pom)] if pom else [])]


def compile_java(source: Path, jars: Path, classes: Path) -> list[str]:
    """Return the command that compiles a class with the jars of a folder."""
    return ["javac", "--release", "17", "-cp", f"{jars}/*", "-d", str(classes), str(source)]
