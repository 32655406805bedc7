"""Hold the places of events in their source's log as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.engine.layout import ORDER_PARTS, Numbers
from lakecdc.ingest.envelopes import debezium
from lakecdc.ingest.envelopes.message import Place
from lakecdc.model.order import LAST_TIME, RANK_CHANGE, RANK_READ

# the beginning of Postgres' ``sequence``, and as many digits as 63 bits always hold
_COMMIT_LSN = r'^\["0*(?P<lsn>[0-9]{1,18})"'


@dataclass(frozen=True)
class Places:
    """Places of events, see :class:`~lakecdc.ingest.envelopes.message.Place`; times may be null."""

    positions: Numbers
    ordinals: Numbers
    ranks: Numbers
    times: pa.Array

    @classmethod
    def of(cls, places: Sequence[Place]) -> Places:
        return cls(
            np.array([place.position for place in places], np.uint64),
            np.array([place.ordinal for place in places], np.int64),
            np.array([place.rank for place in places], np.int8),
            pa.array([place.time_us for place in places], pa.int64()),
        )

    @classmethod
    def of_lsns(
        cls, lsns: Sequence[int], commits: Sequence[str] | None, reads: Sequence[bool], times: pa.Array
    ) -> Places:
        """Return the places of Postgres' events, as :func:`debezium.place` does.

        :param lsns: of 63 bits.
        :param commits: ``sequence`` of each event; None if they have none.
        :param reads: whether a snapshot has read the row.
        """
        ordinals = np.array(lsns, np.int64)
        ranks = np.where(reads, RANK_READ, RANK_CHANGE).astype(np.int8)
        positions = ordinals if commits is None else _commits(commits, ordinals)
        return cls(positions.astype(np.uint64), ordinals, ranks, times)

    def order_parts(self, arrivals: Numbers) -> dict[str, Numbers]:
        """Return the parts of order keys, ``layout.ORDER_PARTS``, given the places of arrival."""
        times = self.times.fill_null(0).to_numpy(zero_copy_only=False)
        # as :meth:`Place.order` cuts them
        millis = np.clip(times // 1000, 0, LAST_TIME)
        return dict(zip(ORDER_PARTS, (self.positions, self.ordinals, self.ranks, millis, arrivals), strict=True))


def _commits(sequences: Sequence[str], lsns: Numbers) -> Numbers:
    found = pc.extract_regex(pa.array(sequences, pa.string()), _COMMIT_LSN)
    known = pc.struct_field(found, "lsn").cast(pa.int64())
    positions: Numbers = known.fill_null(0).to_numpy(zero_copy_only=False).copy()
    for number in np.flatnonzero(~known.is_valid().to_numpy(zero_copy_only=False)).tolist():
        position = debezium.commit_lsn(sequences[number])
        positions[number] = lsns[number] if position is None else position
    return positions
