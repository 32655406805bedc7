"""Cases of both format versions: CI runs one of them, ``make test-soak`` the other."""

from __future__ import annotations

import pytest

from tests.on_demand import on_demand

V2 = pytest.mark.parametrize("version", on_demand((2, 3), in_ci=(2,)))
V3 = pytest.mark.parametrize("version", on_demand((2, 3), in_ci=(3,)))
