"""The program that creates the project's environment, with the places of packages and jars."""

from __future__ import annotations

import importlib.util
from functools import cache
from types import ModuleType

from local_services.paths import REPOSITORY


@cache
def setup_program() -> ModuleType:
    """Return ``.ci/bootstrap.py`` as a module; it runs before there is an environment and imports nothing of ours."""
    spec = importlib.util.spec_from_file_location("lakecdc_bootstrap", REPOSITORY / ".ci" / "bootstrap.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
