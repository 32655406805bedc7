"""The live files of a snapshot, as its manifests have them: what workers and jobs read alike and decide by."""

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
    """One live file of a snapshot, as its manifest has it.

    :param scope: the partition, that is partition spec and values; None for equality deletes that apply everywhere.
    :param bytes: its size; of a deletion vector that of the Puffin file that holds it.
    :param sequence: data sequence number.
    :param location: of a data file its own; of position deletes that of the one data file they refer to, if that is
        known; a deletion vector refers to one in any case.
    :param puffin: where the Puffin file is that holds a deletion vector, perhaps with those of other data files.
    :param data_bytes: of a data file the part that is columns, without footer and indexes; 0 if unknown.
    :param added_by: the snapshot that added it.
    :param bounds: of a data file those of the columns that were asked for.
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
