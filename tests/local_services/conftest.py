"""Fixtures of servers that drop their rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.open_folder import open_folder


@pytest.fixture(name="folder")
def open_to_all() -> Iterator[Path]:
    """Yield a folder that any account may enter."""
    with open_folder() as entered:
        yield entered
