"""Live files of a snapshot from its manifests, shared by workers and jobs."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum

from lakecdc.metadata.overlap import ColumnBounds

#: field id of ``file_path`` in position-delete files (Iceberg specification, reserved field ids)
PATH_ID = 2147483546


class Content(StrEnum):
    """Kinds of live files."""

    DATA = "data files"
    EQUALITY_DELETES = "equality deletes"
    POSITION_DELETES = "position deletes"
    DELETION_VECTOR = "deletion vectors"


@dataclass(frozen=True)
class LiveFile:
    """One live file of a snapshot as its manifest lists it.

    :param scope: partition spec and values; None for equality deletes that apply everywhere.
    :param bytes: its size; for a deletion vector that of its Puffin file.
    :param sequence: data sequence number.
    :param location: for a data file its own; for position deletes that of the one data file they refer to, if known;
        deletion vectors always refer to one.
    :param puffin: location of a deletion vector's Puffin file, which may contain those of other data files.
    :param data_bytes: size of a data file's columns, without footer and indexes; 0 if unknown.
    :param added_by: the snapshot that added it.
    :param bounds: of a data file's requested columns.
    """

    content: Content
    scope: Hashable
    bytes: int
    rows: int
    sequence: int
    location: str | None = None
    puffin: str | None = None
    data_bytes: int = 0
    added_by: int = 0
    bounds: tuple[ColumnBounds, ...] = ()
