"""Link of a history table's batch to the state of its table.

A batch is committed to the history table first. While the table is still at that state, it has not applied the batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lakecdc.metadata.names import SIDE_OF

if TYPE_CHECKING:
    from lakecdc.metadata.positions import Carrier


@dataclass(frozen=True)
class SideOf:
    """Note in the summary of a history table's batch about its table.

    :param table: its UUID.
    :param after: id of the snapshot with its position before the batch; None if it was never fed.
    :param full_load: the batch has all rows of the table; later parts of a load are normal batches.
    :param mark: highest order key in the history table before it.
    """

    table: str
    after: str | None
    full_load: bool
    mark: str | None

    def encode(self) -> dict[str, str]:
        """Encode the note as a summary entry."""
        return {SIDE_OF: json.dumps(asdict(self), sort_keys=True)}

    def is_ahead_of(self, table_uuid: str, carrier: Carrier | None) -> bool:
        """Check whether a table has not applied the batch.

        :param carrier: of its position.
        """
        return self.table == table_uuid and self.after in (carrier.ids if carrier else (None,))


def read_side_of(summary: Mapping[str, str]) -> SideOf | None:
    """Read the note from a summary; return None if it has none."""
    text = summary.get(SIDE_OF)
    return SideOf(**json.loads(text)) if text else None
