"""What a history table tells of its table: the state that a batch goes with.

A batch is committed to the history table first. Where the table still stands at that state, it has not taken the batch.
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
    """What the summary of a batch in a history table says of the table beside it.

    :param table: its UUID.
    :param after: id of the snapshot that carried its position before the batch; None if it was never fed.
    :param full_load: all rows of the table come with the batch; of a load in parts, the others are batches like any.
    :param mark: highest order key in the history table before it.
    """

    table: str
    after: str | None
    full_load: bool
    mark: str | None

    def encode(self) -> dict[str, str]:
        """It as an entry of a summary."""
        return {SIDE_OF: json.dumps(asdict(self), sort_keys=True)}

    def is_ahead_of(self, table_uuid: str, carrier: Carrier | None) -> bool:
        """Whether a table has not taken the batch.

        :param carrier: where it stands.
        """
        return self.table == table_uuid and self.after in (carrier.ids if carrier else (None,))


def read_side_of(summary: Mapping[str, str]) -> SideOf | None:
    """What a summary says; None if it is not of a batch in a history table."""
    text = summary.get(SIDE_OF)
    return SideOf(**json.loads(text)) if text else None
