"""The catalog shared by the tests of this folder."""

from __future__ import annotations

import pytest

from tests.conftest import Lake
from tests.lakecdc.maintain.orphans.support import Attic


@pytest.fixture(scope="module")
def attic(lake: Lake, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Attic:
    """Yield an empty catalog."""
    name = request.module.__name__.rpartition(".")[2]
    return Attic(lake, tmp_path_factory.mktemp("attic"), f"attic_{name}")
