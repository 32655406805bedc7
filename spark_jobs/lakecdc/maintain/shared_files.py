"""Protection of tables whose files may belong to other tables too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.contract.errors import UnsupportedError

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


def refuse_shared_files(table: IcebergTable) -> None:
    """Refuse to delete files of a table that forbids it.

    :raises UnsupportedError: its property ``gc.enabled`` is false.
    """
    if table.properties.get("gc.enabled", "true").lower() == "false":
        raise UnsupportedError(
            "Its property gc.enabled is false, so its files may belong to other tables.",
            table=table.name,
            hint="Set it to true if they do not.",
        )
