"""Format v2: one Parquet file of position deletes per data file (table specification, "Position Delete Files")."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.delete_file_objects import FILE_PATH_ID, POSITION_ID, WrittenDeletes
from lakecdc.iceberg.file_io import output

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap64

    from lakecdc.writer.deletes import FilePositions, Target

_COLUMNS = [(FILE_PATH_ID, "file_path", "string"), (POSITION_ID, "pos", "long")]


def write_position_deletes(files: Iterable[FilePositions], target: Target) -> Iterator[WrittenDeletes]:
    """Write one file per data file, positions ascending.

    :param files: positions by data file.
    """
    for file in files:
        deleted = file.known | file.hit
        location = f"{target.folder}/{file.file_number:05d}-{uuid.uuid4()}-deletes.parquet"
        size = _write(location, position_table(target.data_files[file.file_number], deleted), target)
        yield WrittenDeletes(file.file_number, location, size, len(deleted), file.added, deleted.min(), deleted.max())


def position_table(data_file: str, positions: BitMap64) -> pa.Table:
    """Build rows of a position-delete file with the reserved field ids and footer entries of Iceberg's writers.

    :param data_file: location of the data file.
    """
    import numpy as np
    import pyarrow as pa

    values = np.frombuffer(positions.to_array(), dtype="int64")
    paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(values), dtype="int32")), pa.array([data_file]))
    fields = [
        pa.field(name, pa.int64() if kind == "long" else paths.type, False, {"PARQUET:field_id": str(field_id)})
        for field_id, name, kind in _COLUMNS
    ]
    footer = {"delete-type": "position", "iceberg.schema": json.dumps(_schema())}
    return pa.Table.from_arrays([paths, pa.array(values)], schema=pa.schema(fields, footer))


def _write(location: str, table: pa.Table, target: Target) -> int:
    import pyarrow.parquet as pq

    with output(target.properties, location).create(overwrite=False) as stream:
        # Arrow's own schema in the footer would make Arrow readers see a dictionary instead of a string
        pq.write_table(table, stream, compression="zstd", store_schema=False)
        return int(stream.tell())


def _schema() -> dict[str, Any]:
    fields = [{"id": field_id, "name": name, "required": True, "type": kind} for field_id, name, kind in _COLUMNS]
    return {"type": "struct", "schema-id": 0, "fields": fields}
