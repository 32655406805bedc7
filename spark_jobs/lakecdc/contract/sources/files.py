"""The ``source`` of an ingest spec: event files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakecdc.contract.errors import SpecError
from lakecdc.contract.sources.formats import UNAVAILABLE_VALUE, MessageFormat
from lakecdc.contract.target import Target


@dataclass(frozen=True)
class FilesSource:
    """Change events in files, each file read once per table.

    :param path: a path, glob or URI, or a list of them.
    :param format: name of the event format.
    :param order_by: with ``json``: the member that rises with every change of a row; default: arrival decides.
    :param unavailable_value: the placeholder that Debezium is configured to write for unchanged large values.
    :param records: ``value`` when a line is one event, ``kafka`` when a line is a dumped Kafka record
        (``topic, partition, offset, timestamp, key, value, headers``).
    :param max_files_per_run: bound on new files that one run takes up, in order of their names; 0 is no bound.
    """

    path: str | tuple[str, ...]
    format: MessageFormat
    type: Literal["files"] = "files"
    records: Literal["value", "kafka"] = "value"
    max_files_per_run: int = 0
    order_by: str | None = None
    unavailable_value: str = UNAVAILABLE_VALUE

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths as a tuple."""
        return (self.path,) if isinstance(self.path, str) else self.path

    def check_targets(self, targets: tuple[Target, ...]) -> None:
        """Refuse targets that event files cannot feed.

        :raises SpecError: a target without a key that needs one.
        """
        for target in targets:
            if target.keyed and not target.key:
                raise SpecError(
                    "No key is given, and event files do not tell one.",
                    table=target.table,
                    hint='Add "key": ["column", …] to its target.',
                )
