"""The ``source`` of an ingest spec: files of change events or of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakecdc.contract.errors import SpecError
from lakecdc.contract.sources.formats import (
    KEY_IN_MESSAGE,
    KEY_OF_MESSAGE,
    ROW_FORMATS,
    UNAVAILABLE_VALUE,
    CsvSettings,
    MessageFormat,
    RowFormat,
    TextSettings,
    XmlSettings,
)
from lakecdc.contract.target import Target


@dataclass(frozen=True)
class FilesSource:
    """Change events or rows in files, each file read once per table.

    :param path: a path, glob or URI, or a list of them.
    :param format: name of the format.
    :param order_by: with ``json``, ``csv``, ``xml``, ``parquet`` and ``text``: the column that rises with every change
        of a row; default: arrival decides, in order of the files' names.
    :param unavailable_value: the placeholder that Debezium is configured to write for unchanged large values.
    :param records: ``value`` when a line (with ``debezium-avro`` a record of a container file) is one event, ``kafka``
        when a line is a dumped Kafka record (``topic, partition, offset, timestamp, key, value, headers``).
    :param max_files_per_run: bound on new files that one run takes up, in order of their names; 0 is no bound.
    :param forget_gone_files: how many files a table remembers that are no longer under ``path`` before it forgets them;
        0 forgets none. One that comes back after that is read again.
    :param max_batch_bytes: bytes of files in one micro-batch, as they are stored; a file is never cut; 0 is no bound.
    :param csv: settings of the format ``csv``.
    :param xml: settings of the format ``xml``, required there.
    :param text: settings of the format ``text``, required there.
    :param timestamp_format: how times are written in text, such as ``dd/MMM/yyyy:HH:mm:ss Z`` (Spark's patterns);
        default: ISO-8601.
    """

    path: str | tuple[str, ...]
    format: MessageFormat | RowFormat
    type: Literal["files"] = "files"
    records: Literal["value", "kafka"] = "value"
    max_files_per_run: int = 0
    max_batch_bytes: int = 4 * 1024 * 1024 * 1024
    forget_gone_files: int = 0
    order_by: str | None = None
    unavailable_value: str = UNAVAILABLE_VALUE
    csv: CsvSettings | None = None
    xml: XmlSettings | None = None
    text: TextSettings | None = None
    timestamp_format: str | None = None

    def __post_init__(self) -> None:
        for name in ("max_files_per_run", "max_batch_bytes", "forget_gone_files"):
            if getattr(self, name) < 0:
                raise SpecError(f"source.{name} is {getattr(self, name)}.", hint="It must be at least 0.")
        for name in ("csv", "xml", "text"):
            given = getattr(self, name)
            if given is not None and self.format != name:
                raise SpecError(f"source.{name} is set, but the format is {self.format!r}.", hint="Leave it out.")
            if given is None and self.format == name and name != "csv":
                raise SpecError(f"source.{name} is missing, which the format {name!r} needs.")
        if (self.has_rows or self.format == "debezium-avro") and self.records == "kafka":
            raise SpecError(f"Files of format {self.format!r} are no dumped records.", hint="Leave records out.")

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths as a tuple."""
        return (self.path,) if isinstance(self.path, str) else self.path

    @property
    def has_rows(self) -> bool:
        """Whether the files hold rows instead of change events."""
        return self.format in ROW_FORMATS

    def check_targets(self, targets: tuple[Target, ...]) -> None:
        """Refuse targets that files cannot feed.

        :raises SpecError: a target without a key that needs one.
        """
        records_tell = self.records == "kafka" and self.format in KEY_OF_MESSAGE
        for target in targets:
            if target.keyed and not target.key and not records_tell and self.format not in KEY_IN_MESSAGE:
                raise SpecError(
                    f"No key is given, and files of format {self.format!r} do not tell one.",
                    table=target.table,
                    hint='Add "key": ["column", …] to its target.',
                )
