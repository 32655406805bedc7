"""Faults on the way to a catalog, and when they strike."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A fault of one commit.

    :param lost: ``answer``: the catalog commits, but its answer is lost; ``request``: the request is lost.
    :param nth: number of the commit from now on, or of the request.
    :param anything: count all requests, not only commits.
    :param meanwhile: action before the request is forwarded; nothing is lost then.
    :param status: status that the gateway answers instead of the catalog; 0: the connection ends.
    :param retry_after: whether the gateway asks for a retry.
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
    """Counter of the requests to a catalog that decides when a fault strikes.

    :ivar struck: whether the fault has struck.
    :ivar down: whether the catalog is away.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._left = 0
        self.struck = self.down = False

    def arm(self, fault: Fault) -> None:
        """Let a fault strike one of the next requests."""
        with self._lock:
            self._fault, self._left, self.struck = fault, fault.nth, False

    def disarm(self) -> None:
        """Let all requests through."""
        with self._lock:
            self._fault = None

    def next(self, *, commits: bool = True) -> Fault | None:
        """Return the fault of the next request, None if it gets through.

        :param commits: whether the request is a commit.
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
