"""The program that creates the project's environment and locates packages and jars."""

from __future__ import annotations

import importlib.util
from functools import cache
from types import ModuleType

from local_services.paths import REPOSITORY


@cache
def setup_program() -> ModuleType:
    """Return ``.ci/bootstrap.py`` as a module; it precedes the environment and imports nothing of the project."""
    spec = importlib.util.spec_from_file_location("lakecdc_bootstrap", REPOSITORY / ".ci" / "bootstrap.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
