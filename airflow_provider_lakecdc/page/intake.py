"""Events and rows that ingestion applied, from the metrics of its reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Intake:
    """Numbers of events, rows written and messages quarantined, and the seconds that it took."""

    events: int = 0
    rows_written: int = 0
    quarantined: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, metrics: Mapping[str, Any]) -> Intake:
        """Read the metrics of a table's report; those of other jobs than ingestion count nothing."""
        if "rows_per_second" not in metrics:
            return cls()
        events = sum(int(value) for name, value in metrics.items() if name.startswith("events_"))
        written, quarantined = metrics.get("rows_written", 0), metrics.get("quarantined", 0)
        return cls(events, int(written), int(quarantined), float(metrics.get("seconds", 0.0)))

    def __add__(self, other: Intake) -> Intake:
        return Intake(
            self.events + other.events,
            self.rows_written + other.rows_written,
            self.quarantined + other.quarantined,
            self.seconds + other.seconds,
        )

    @property
    def events_per_second(self) -> float | None:
        """Return the events in a second of work; None without work."""
        return self.events / self.seconds if self.seconds else None

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield the numbers that are not 0."""
        for name in ("events", "rows_written", "quarantined"):
            if value := getattr(self, name):
                yield {"name": name.replace("_", " "), "before": None, "after": value}
