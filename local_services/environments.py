"""Python environments of tools whose packages conflict with the project's."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from local_services.setup_program import setup_program


def make_environment(run: Callable[[Sequence[str]], None], home: Path, packages: Sequence[str]) -> Path:
    """Recreate an environment with uv and return its Python.

    :param run: runs a program, raising an error if it fails
    :param home: folder of the environment
    """
    shutil.rmtree(home, ignore_errors=True)
    setup, python = setup_program(), home / "bin" / "python"
    uv, index, trusted = setup.find_uv(), setup.package_index(), setup.trusted_certificates()
    environment = ["env", f"UV_DEFAULT_INDEX={index}", *([f"SSL_CERT_FILE={trusted}"] if trusted else [])]
    run([*environment, uv, "venv", "-q", "--python", sys.executable, str(home)])
    run([*environment, uv, "pip", "install", "-q", "--python", str(python), *packages])
    return python
