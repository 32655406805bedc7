"""When a faulty way to a catalog strikes, and how."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """What happens to one commit on its way.

    :param lost: ``answer``: the catalog carries it out and cannot say so; ``request``: it never gets there.
    :param nth: which of the commits from now on, or of all that is asked of the catalog.
    :param anything: whatever is asked counts, not commits alone.
    :param meanwhile: is done before what is on its way goes on, of which nothing is lost then.
    :param status: what the client is told by a gateway instead of the catalog; 0: the connection ends.
    :param retry_after: whether the gateway asks for another try.
    :param outage: whether the catalog stays away afterwards.
    """

    lost: str = "answer"
    nth: int = 1
    status: int = 0
    retry_after: bool = False
    outage: bool = False
    anything: bool = False
    meanwhile: Callable[[], None] | None = None


class Strikes:
    """Counts what is asked of a catalog, and says when a fault strikes.

    :ivar struck: whether it has.
    :ivar down: whether the catalog is away.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._left = 0
        self.struck = self.down = False

    def arm(self, fault: Fault) -> None:
        """Let a fault strike what comes next."""
        with self._lock:
            self._fault, self._left, self.struck = fault, fault.nth, False

    def disarm(self) -> None:
        """Let everything through."""
        with self._lock:
            self._fault = None

    def next(self, *, commits: bool = True) -> Fault | None:
        """The fault of what is on its way; None if it gets through.

        :param commits: it is a commit.
        """
        with self._lock:
            if self._fault is None or not (commits or self._fault.anything):
                return None
            self._left -= 1
            if self._left:
                return None
            self.struck, self.down = True, self._fault.outage
            fault = self._fault
        if fault.meanwhile is None:
            return fault
        fault.meanwhile()
        return None
