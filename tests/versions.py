"""Cases of both format versions: CI runs one of them, ``make test-soak`` the other."""

from __future__ import annotations

import pytest

V2 = pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.soak)])
V3 = pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.soak), 3])
