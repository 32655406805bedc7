"""Export state of a change table: a position whose source is the exported table."""

from __future__ import annotations

from lakecdc.contract.errors import InputError
from lakecdc.metadata.positions import Position

#: type of such a source
SOURCE = "iceberg"
#: reason in the report for an empty export
EXPORTED = "everything is already exported"


def position_of(table: str, uuid: str, snapshot_id: int, read_through: str | None) -> Position:
    """Build the position of a change table.

    :param uuid: of the source, which a recreated table of the same name does not have.
    :param snapshot_id: of the source, up to which changes are included.
    """
    return Position(SOURCE, uuid, {"table": table, "snapshot": str(snapshot_id)}, read_through)


def exported_snapshot(position: Position | None, table: str, uuid: str, destination: str) -> int | None:
    """Return the id of the last exported snapshot; None if there is none.

    :param position: of the destination.
    :raises InputError: it was written from another source.
    """
    if position is None:
        return None
    if (position.source, position.identity) != (SOURCE, uuid):
        raise of_another(table, destination)
    return int(position.offsets["snapshot"])


def of_another(table: str, destination: str) -> InputError:
    """Create the error for a destination with other content than changes of the table."""
    return InputError(
        f"{destination} does not contain changes of this table, which may have been recreated since.",
        table=table,
        hint="Export to another table or folder, which starts with all rows.",
    )
