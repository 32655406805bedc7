"""Numbers as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

_TIMES = ((86400, "d"), (3600, "h"), (60, "min"))
_SIZES = ((1024**4, "TB"), (1024**3, "GB"), (1024**2, "MB"), (1024, "KB"))


def age(moment: str | None) -> str:
    """How long ago a moment was, in its largest unit; ``-`` without one.

    :param moment: ISO-8601 with a zone.
    """
    return "-" if moment is None else duration((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())


def duration(seconds: float) -> str:
    """A time in its largest unit; a negative one is none, since clocks differ."""
    return _in_units(max(seconds, 0.0), _TIMES, "s")


def size(bytes: float) -> str:
    """Bytes in their largest unit."""
    return _in_units(bytes, _SIZES, "bytes")


def _in_units(number: float, units: tuple[tuple[int, str], ...], smallest: str) -> str:
    amount, unit = next(((number / size, unit) for size, unit in units if number >= size), (number, smallest))
    return f"{amount:.0f} {unit}"
