"""The folders that benchmarks work in."""

from __future__ import annotations

import shutil
from pathlib import Path


def emptied(folder: Path, inside: str = "") -> Path:
    """Make a folder anew, without what an earlier run has left.

    :param inside: a folder within it that is made too.
    :return: its absolute path.
    """
    found = folder.resolve()
    shutil.rmtree(found, ignore_errors=True)
    (found / inside).mkdir(parents=True)
    return found
