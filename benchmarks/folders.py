"""Prepare the folders of benchmarks."""

from __future__ import annotations

import shutil
from pathlib import Path


def emptied(folder: Path, inside: str = "") -> Path:
    """Recreate an empty folder.

    :param inside: a subfolder to create.
    :return: its absolute path.
    """
    path = folder.resolve()
    shutil.rmtree(path, ignore_errors=True)
    (path / inside).mkdir(parents=True)
    return path
