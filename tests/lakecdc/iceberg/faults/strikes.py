"""When a faulty way to a catalog strikes, and how."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """What happens to one commit on its way.

    :param lost: ``answer``: the catalog carries it out and cannot say so; ``request``: it never gets there.
    :param nth: which of the commits from now on.
    :param status: what the client is told by a gateway instead of the catalog; 0: the connection ends.
    :param retry_after: whether the gateway asks for another try.
    :param outage: whether the catalog stays away afterwards.
    """

    lost: str = "answer"
    nth: int = 1
    status: int = 0
    retry_after: bool = False
    outage: bool = False


class Strikes:
    """Counts commits, and says which of them a fault strikes.

    :ivar struck: whether it has.
    :ivar down: whether the catalog is away.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._left = 0
        self.struck = self.down = False

    def arm(self, fault: Fault) -> None:
        """Let a fault strike one of the next commits."""
        with self._lock:
            self._fault, self._left, self.struck = fault, fault.nth, False

    def next(self) -> Fault | None:
        """The fault of a commit that is on its way; None if it gets through."""
        with self._lock:
            self._left -= 1
            if self._fault is None or self._left:
                return None
            self.struck, self.down = True, self._fault.outage
            return self._fault
