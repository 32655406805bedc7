"""The ``source`` of ``reconcile``: other tables of the same catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakecdc.contract.errors import SpecError
from lakecdc.contract.target import Target


@dataclass(frozen=True)
class IcebergSource:
    """Tables of the catalog, each named by its target's ``source_table``.

    :param snapshot: a snapshot id, a tag, a branch, or an ISO-8601 time, which means the newest snapshot of ``main`` at
        that time; default: the newest one. A target without ``source_table`` is compared with itself at that snapshot.
    """

    type: Literal["iceberg"] = "iceberg"
    snapshot: str | None = None

    def check_targets(self, targets: tuple[Target, ...]) -> None:
        """Raise a :class:`SpecError` for a target that names no other state of a table."""
        for target in targets:
            if target.is_pattern:
                raise SpecError(
                    f"{target.table!r} matches many tables, and a source of type 'iceberg' has no list of them.",
                    hint="Name each table.",
                )
            if self.snapshot is None and target.source_table in (None, target.table):
                raise SpecError(
                    "It would be compared with itself.",
                    table=target.table,
                    hint='Name another table in "source_table" of its target, or a snapshot in source.snapshot.',
                )
