"""Human-readable numbers."""

from __future__ import annotations

from datetime import UTC, datetime

_TIMES = ((86400, "d"), (3600, "h"), (60, "min"))
_SIZES = ((1024**4, "TB"), (1024**3, "GB"), (1024**2, "MB"), (1024, "KB"))


def age(moment: str | None) -> str:
    """Format the age of a timestamp in its largest unit; ``-`` without one.

    :param moment: ISO-8601 with a zone.
    """
    return "-" if moment is None else duration((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())


def duration(seconds: float) -> str:
    """Format a duration in its largest unit; negative ones count as 0, since clocks differ."""
    return _in_units(max(seconds, 0.0), _TIMES, "s")


def size(bytes: float) -> str:
    """Format a number of bytes in its largest unit."""
    return _in_units(bytes, _SIZES, "bytes")


def _in_units(number: float, units: tuple[tuple[int, str], ...], smallest: str) -> str:
    amount, unit = next(((number / size, unit) for size, unit in units if number >= size), (number, smallest))
    return f"{amount:.0f} {unit}"
