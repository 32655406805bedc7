"""The lease of a table: which run currently has exclusive maintenance, and until when.

The tag ``lakecdc-lease`` is the lease; this property names its holder, because a property alone has no
compare-and-swap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from lakecdc.metadata.names import LEASE

#: seconds that a lease lasts unless renewed, which happens after each third of it
SECONDS = 90.0
#: seconds after its end before it can be taken over: clocks differ, and a renewal may be in progress
GRACE_SECONDS = 10.0
# longest accepted term, as a multiple of ours: a later release may use a longer one
_LONGEST_TERMS = 10


@dataclass(frozen=True)
class Lease:
    """Content of the property.

    :param token: unique to this holder, never reused.
    :param until_ms: end of the lease unless renewed, milliseconds since 1970, by its holder's clock.
    :param term_ms: its duration unless renewed; 0: as long as one of ours.
    """

    token: str
    holder: str
    until_ms: int
    term_ms: int = 0

    def encode(self) -> str:
        """Encode the property's value."""
        return json.dumps(asdict(self))

    def renewed(self, now_ms: int) -> Lease:
        """Return the lease renewed for its whole duration."""
        term_ms = round(SECONDS * 1000)
        return Lease(self.token, self.holder, now_ms + term_ms, term_ms)

    def may_be_renewed(self, now_ms: int) -> bool:
        """Check whether it is still valid."""
        return now_ms < self.until_ms

    def may_be_taken_over(self, now_ms: int) -> bool:
        """Check whether it and its grace period are over."""
        return now_ms > self.until_ms + round(GRACE_SECONDS * 1000)

    @property
    def seconds_of_silence(self) -> float:
        """Return how long a contender must see it unchanged to take it over, because clocks may be wrong."""
        return min(max(self.term_ms / 1000, SECONDS), _LONGEST_TERMS * SECONDS) + GRACE_SECONDS

    def is_beyond_term(self, now_ms: int) -> bool:
        """Check whether its end is further ahead than its term allows, which means that a clock is wrong."""
        return self.until_ms - now_ms > self.seconds_of_silence * 1000


def read_lease(properties: Mapping[str, str]) -> Lease | None:
    """Read the lease from a table's properties; None if there is none. An unreadable one counts as over."""
    text = properties.get(LEASE)
    if text is None:
        return None
    try:
        document = json.loads(text)
        return Lease(
            str(document["token"]), str(document["holder"]), int(document["until_ms"]), int(document.get("term_ms", 0))
        )
    except (ValueError, TypeError, KeyError, OverflowError):
        return Lease("unreadable", "another run", 0)
