"""The ``source`` of an ingest spec: files of change events or of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import check_least
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
    refuse_keyless,
)
from lakecdc.contract.target import Target


@dataclass(frozen=True)
class FilesSource:
    """Change events or rows in files; each table reads each file once.

    :param path: a path, glob or URI, or a list of them.
    :param format: format of the events or rows; it decides which settings below apply.
    :param order_by: with ``json``, ``csv``, ``xml``, ``parquet`` and ``text``: column that grows with every change of a
        row; default: order of arrival, by file name.
    :param unavailable_value: Debezium's placeholder for unchanged large values.
    :param records: ``value`` if a line (with ``debezium-avro`` a record of a container file) is an event, ``kafka`` if
        it is a dumped Kafka record (``topic, partition, offset, timestamp, key, value, headers``).
    :param max_files_per_run: limit of new files per run, in order of their names; 0 means no limit.
    :param forget_gone_files: number of files gone from ``path`` that a table remembers before it forgets them; 0 means
        forget none. A forgotten file that comes back is read again.
    :param max_batch_bytes: stored bytes of files per micro-batch; files are never split; 0 means no limit.
    :param csv: settings for ``csv``.
    :param xml: settings for ``xml``, required there.
    :param text: settings for ``text``, required there.
    :param timestamp_format: Spark's pattern for times in text, such as ``dd/MMM/yyyy:HH:mm:ss Z``; default: ISO-8601.
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
        check_least(self, "source", max_files_per_run=0, max_batch_bytes=0, forget_gone_files=0)
        for name in ("csv", "xml", "text"):
            given = getattr(self, name)
            if given is not None and self.format != name:
                raise SpecError(f"source.{name} is set, but the format is {self.format!r}.", hint="Remove it.")
            if given is None and self.format == name and name != "csv":
                raise SpecError(f"source.{name} is missing, which the format {name!r} needs.")
        if (self.has_rows or self.format == "debezium-avro") and self.records == "kafka":
            raise SpecError(f"source.records is not supported for format {self.format!r}.", hint="Remove it.")

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,) if isinstance(self.path, str) else self.path

    @property
    def has_rows(self) -> bool:
        """Whether the files contain rows instead of change events."""
        return self.format in ROW_FORMATS

    def check_targets(self, targets: tuple[Target, ...]) -> None:
        """Raise a :class:`SpecError` if a target lacks a key that it needs."""
        if self.format not in KEY_IN_MESSAGE and not (self.records == "kafka" and self.format in KEY_OF_MESSAGE):
            refuse_keyless(targets, "files", self.format)
