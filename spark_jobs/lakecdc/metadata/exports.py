"""How far a table was exported to a table of its changes: a position whose source is the table."""

from __future__ import annotations

from lakecdc.contract.errors import InputError
from lakecdc.metadata.positions import Position

#: type of such a source
SOURCE = "iceberg"
#: why there is nothing to export
EXPORTED = "everything is exported already"


def position_of(table: str, uuid: str, snapshot_id: int, read_through: str | None) -> Position:
    """Where a table of changes stands.

    :param table: the source, ``namespace.name``.
    :param uuid: of the source, which a table of the same name made anew does not have.
    :param snapshot_id: of the source, up to which changes are there.
    :param read_through: what that snapshot says of its own source.
    """
    return Position(SOURCE, uuid, {"table": table, "snapshot": str(snapshot_id)}, read_through)


def exported_snapshot(position: Position | None, table: str, uuid: str, destination: str) -> int | None:
    """Id of the snapshot up to which a table was exported; None if it never was.

    :param position: where the destination stands.
    :param table: the source, ``namespace.name``.
    :param uuid: of the source.
    :param destination: as the message is to name it.
    :raises InputError: it was fed from elsewhere.
    """
    if position is None:
        return None
    if (position.source, position.identity) != (SOURCE, uuid):
        raise of_another(table, destination)
    return int(position.offsets["snapshot"])


def of_another(table: str, destination: str) -> InputError:
    """The error of a destination that holds something else than changes of the table."""
    return InputError(
        f"{destination} holds something else than changes of this table, which may have been made anew since.",
        table=table,
        hint="Export to another table or folder: it begins with all rows.",
    )
