"""Partition transforms as a spec writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lakecdc.contract.errors import SpecError

_NAME = r"(?:\w+|`(?:[^`]|``)+`)"
_COLUMN = rf"{_NAME}(?:\.{_NAME})*"
_TRANSFORM = re.compile(
    rf"\s*(?:{_COLUMN}"
    rf"|(?i:bucket|truncate)\s*\(\s*[1-9]\d*\s*,\s*{_COLUMN}\s*\)"
    rf"|(?i:years?|months?|days?|hours?|date|date_hour|identity)\s*\(\s*{_COLUMN}\s*\))\s*"
)


def check_transforms(transforms: Sequence[str], key: str, table: str) -> None:
    """Refuse what is no transform of Iceberg.

    :param key: the setting that they stand in, for the message.
    :param table: the target they are for.
    :raises SpecError: naming the first that is none.
    """
    for transform in transforms:
        if not _TRANSFORM.fullmatch(transform):
            raise SpecError(
                f"target.{key} has {transform!r}, which is no partition transform.",
                table=table,
                hint="Write a column, bucket(8, column), truncate(4, column), or years, months, days or hours(column); "
                "a name with blanks or signs stands in backticks.",
            )
