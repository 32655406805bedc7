"""The ``source`` of an ingest spec: event files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakecdc.contract.errors import SpecError
from lakecdc.contract.target import Target


@dataclass(frozen=True)
class FilesSource:
    """Change events in files, each file read once per table.

    :param path: a path, glob or URI, or a list of them.
    :param format: name of the event format.
    :param records: ``value`` when a line is one event, ``kafka`` when a line is a dumped Kafka record
        (``topic, partition, offset, timestamp, key, value, headers``).
    :param max_files_per_run: bound on new files that one run takes up, in order of their names; 0 is no bound.
    """

    path: str | tuple[str, ...]
    format: Literal["debezium-json"]
    type: Literal["files"] = "files"
    records: Literal["value", "kafka"] = "value"
    max_files_per_run: int = 0

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
