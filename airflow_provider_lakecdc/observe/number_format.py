"""Human-readable numbers; ``-`` where there is none."""

from __future__ import annotations

from datetime import UTC, datetime

_TIMES = ((86400, "d"), (3600, "h"), (60, "min"))
_SIZES = ((1024**4, "TB"), (1024**3, "GB"), (1024**2, "MB"), (1024, "KB"))


def age(moment: datetime | str | None) -> str:
    """Format the age of a timestamp with a zone, ISO-8601 if a text, in its largest unit."""
    moment = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return duration((datetime.now(UTC) - moment).total_seconds() if moment else None)


def duration(seconds: float | None) -> str:
    """Format a duration in its largest unit; negative ones count as 0, since clocks differ."""
    return _in_units(None if seconds is None else max(seconds, 0.0), _TIMES, "s")


def number(value: float | None) -> str:
    """Format a whole number with separators of thousands."""
    return "-" if value is None else f"{value:,.0f}"


def size(bytes: float | None) -> str:
    """Format a number of bytes in its largest unit."""
    return _in_units(bytes, _SIZES, "bytes")


def _in_units(value: float | None, units: tuple[tuple[int, str], ...], smallest: str) -> str:
    if value is None:
        return "-"
    amount, unit = next(((value / size, unit) for size, unit in units if value >= size), (value, smallest))
    return f"{amount:.0f} {unit}"
