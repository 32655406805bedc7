"""The lease of a table: who rewrites it at present, and until when nobody else of ours does.

The tag ``lakecdc-lease`` is the lease; this property names its holder, because a property alone is no compare-and-swap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from lakecdc.metadata.names import LEASE

#: seconds that a lease lasts unless it is renewed, which happens after each third of it
SECONDS = 90.0
#: seconds after its end in which nobody takes it over: clocks differ, and a commit that renews it may be under way
GRACE_SECONDS = 10.0
# longest term that is believed, in terms of ours: a later release may have a longer one
_LONGEST_TERMS = 10


@dataclass(frozen=True)
class Lease:
    """What the property says.

    :param token: of this one holder, never used again.
    :param holder: for people.
    :param until_ms: end of the lease unless it is renewed, milliseconds since 1970, by the clock of its holder.
    :param term_ms: how long it lasts unless it is renewed; 0: as long as one of ours.
    """

    token: str
    holder: str
    until_ms: int
    term_ms: int = 0

    def encode(self) -> str:
        """The property's value."""
        return json.dumps(asdict(self))

    def renewed(self, now_ms: int) -> Lease:
        """The same one, for its whole length from now on."""
        term_ms = round(SECONDS * 1000)
        return Lease(self.token, self.holder, now_ms + term_ms, term_ms)

    def may_be_renewed(self, now_ms: int) -> bool:
        """Whether its time is not over."""
        return now_ms < self.until_ms

    def may_be_taken_over(self, now_ms: int) -> bool:
        """Whether its time and the grace after it are over."""
        return now_ms > self.until_ms + round(GRACE_SECONDS * 1000)

    @property
    def seconds_of_silence(self) -> float:
        """How long a contender sees it unchanged until it is over, whatever its end says: clocks may be wrong."""
        return min(max(self.term_ms / 1000, SECONDS), _LONGEST_TERMS * SECONDS) + GRACE_SECONDS

    def is_beyond_term(self, now_ms: int) -> bool:
        """Whether its end is further ahead than its term allows, so that somebody's clock is wrong."""
        return self.until_ms - now_ms > self.seconds_of_silence * 1000


def read_lease(properties: Mapping[str, str]) -> Lease | None:
    """The lease that a table's properties tell of; one that cannot be read is over.

    :return: None if they tell of none.
    """
    text = properties.get(LEASE)
    if text is None:
        return None
    try:
        found = json.loads(text)
        return Lease(str(found["token"]), str(found["holder"]), int(found["until_ms"]), int(found.get("term_ms", 0)))
    except (ValueError, TypeError, KeyError, OverflowError):
        return Lease("unreadable", "somebody", 0)
