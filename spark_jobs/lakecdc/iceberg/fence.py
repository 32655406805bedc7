"""Refusing the commit of a run that another run has overtaken."""

from __future__ import annotations

from typing import Any

from lakecdc.metadata import names


class PositionFence:
    """An Iceberg ``SnapshotAncestryValidator``: the head's nearest position must be the one the batch started from.

    Iceberg calls it against the refreshed head on every attempt to commit, so a run that was paused while another
    one moved on cannot commit.

    :param expected: summary text of the position the batch started from; None if there was none.
    :ivar attempts: how often the commit has been tried.
    """

    def __init__(self, expected: str | None) -> None:
        self.expected = expected
        self.found: str | None = expected
        self.attempts = 0

    def validate(self, ancestors: Any) -> bool:
        """Called by Iceberg with the head's ancestors, newest first."""
        self.attempts += 1
        iterator = ancestors.iterator()
        self.found = None
        while iterator.hasNext():
            self.found = iterator.next().summary().get(names.POSITIONS)
            if self.found is not None:
                break
        return self.found == self.expected

    def errorMessage(self) -> str:
        """Called by Iceberg when :meth:`validate` said no."""
        return "another run has moved the source positions of this table"

    class Java:
        """py4j's declaration of the implemented interface."""

        implements = ["org.apache.iceberg.SnapshotAncestryValidator"]
