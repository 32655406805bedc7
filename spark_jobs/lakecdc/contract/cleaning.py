"""The ``clean`` part of a target: what happens to rows on their way."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakecdc.contract.errors import SpecError


@dataclass(frozen=True)
class Cleaning:
    """Cleaning of one table's rows, in this order: rename, compute, filter, select.

    :param rename: new names by the source's names; key columns too.
    :param compute: Spark SQL expressions by column, over the renamed columns: parts of JSON
        (``get_json_object(doc, '$.city')``), parsed times (``to_timestamp(day, 'dd.MM.yyyy')``), anything else. A name
        that the source has too replaces its column.
    :param filter: Spark SQL condition for the rows to keep, over stored columns. A row that an update takes out of it
        is deleted.
    :param select: columns to keep; default: all. Key columns are always kept.
    :param event_time: column with the moment that a row is about; the newest one, less ``lateness_seconds``, is the
        table's watermark.
    :param lateness_seconds: how late rows may come.
    """

    rename: dict[str, str] = field(default_factory=dict)
    compute: dict[str, str] = field(default_factory=dict)
    filter: str | None = None
    select: tuple[str, ...] = ()
    event_time: str | None = None
    lateness_seconds: float = 0.0

    def __post_init__(self) -> None:
        twice = {name for name in self.rename.values() if list(self.rename.values()).count(name) > 1}
        if twice:
            raise SpecError(f"clean.rename gives the name {sorted(twice)[0]!r} twice.")
        if self.lateness_seconds and not self.event_time:
            raise SpecError("clean.lateness_seconds is set without clean.event_time.")

    def renamed(self, name: str) -> str:
        """Return the column that a source column is called."""
        return self.rename.get(name, name)
