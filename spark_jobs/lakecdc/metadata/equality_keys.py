"""Suitability of column types for equality deletes, for the job that converts them and for counting."""

from __future__ import annotations

import re
from typing import Literal

#: ``unreadable``: Iceberg's readers fail on such a key; ``floating``: engines disagree on when two values are equal
Doubt = Literal["unreadable", "floating"]

_PRIMITIVE = re.compile(r"^(?!struct|list|map|variant|geometry|geography)")
_FLOATING = ("float", "double")


def doubt(kind: str | None) -> Doubt | None:
    """Return why an equality delete by a column cannot be converted with certainty; None if it can.

    :param kind: Iceberg type of the column; None if it is not a top-level column.
    """
    if kind is None or not _PRIMITIVE.match(kind):
        return "unreadable"
    return "floating" if kind in _FLOATING else None
