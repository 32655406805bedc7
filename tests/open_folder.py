"""A folder for the data of servers that do not run as root."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_folder() -> Iterator[Path]:
    """Yield a folder that any account may enter, unlike ``tmp_path``; remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="lakecdc-test-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
