"""Files that a rewrite has written, before the commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Written:
    """New files, uncommitted.

    :param files: Java ``DataFile`` objects.
    :param prove: raises VerificationError unless the files have the rows that were read.
    """

    files: Sequence[Any]
    prove: Callable[[], None]
