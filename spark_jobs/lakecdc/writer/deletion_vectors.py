"""Format v3: the deletion vectors of many data files in one Puffin file per task."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from lakecdc.iceberg.delete_file_objects import WrittenDeletes
from lakecdc.iceberg.file_io import output
from lakecdc.iceberg.puffin import PuffinBuilder

if TYPE_CHECKING:
    from lakecdc.writer.deletes import FilePositions, Target


def write_deletion_vectors(files: Iterable[FilePositions], target: Target) -> Iterator[WrittenDeletes]:
    """Write one Puffin file, or none if there is nothing to write.

    :param files: positions by data file.
    """
    builder, facts = PuffinBuilder("lakecdc"), []
    for file in files:
        deleted = file.known | file.hit
        blob = builder.add(target.data_files[file.file_number], deleted)
        facts.append((file.file_number, blob, file.added, deleted.min(), deleted.max()))
    if not facts:
        return
    content, location = builder.finish(), f"{target.folder}/{uuid.uuid4()}-deletes.puffin"
    with output(target.properties, location).create(overwrite=False) as stream:
        stream.write(content)
    for number, blob, added, lowest, highest in facts:
        yield WrittenDeletes(
            number, location, len(content), blob.cardinality, added, lowest, highest, blob.offset, blob.length
        )
