"""The log that refused and failed tables still need: parked in the lake, held by the slot, or given up."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakecdc.ingest.sources.database import full_load_needed
from lakecdc.ingest.sources.postgres.connect import lsn, lsn_text
from lakecdc.ingest.sources.postgres.parking import Parked, Parking

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import SparkSession

    from lakecdc.contract.errors import LakecdcError
    from lakecdc.ingest.sources.postgres.feed import Feed
    from lakecdc.ingest.sources.postgres.log import Round
    from lakecdc.metadata.positions import Position

log = logging.getLogger(__name__)


class Backlog:
    """What the log still has for the tables of a run that do not take it.

    :param catalog: name of the catalog that the targets are in.
    :param held: LSNs that hold the slot, because what the log has for their tables cannot be parked.
    :param left_out: LSNs that hold the slot for source tables that the run does not feed.
    :param given_up: tables whose position the slot has passed, and why; they need a full load.
    """

    def __init__(self, spark: SparkSession, catalog: str) -> None:
        self._parking = Parking(spark, catalog)
        # parked rounds that are not needed any more, by target, up to an LSN
        self._taken: dict[str, int] = {}
        self.held: dict[str, int] = {}
        self.left_out: dict[str, int] = {}
        self.given_up: dict[str, Exception] = {}

    def load(
        self, positions: Mapping[str, Position | None], identity: str
    ) -> tuple[dict[str, list[Parked]], dict[str, LakecdcError]]:
        """The parked rounds that the targets have still to take; others of theirs are let go.

        :param identity: of the source.
        :return: and why it cannot be told of some targets.
        """
        parked, failed = self._parking.load(positions)
        return {name: self._usable(name, positions[name], found, identity) for name, found in parked.items()}, failed

    @property
    def kept(self) -> list[int]:
        """LSNs that hold the slot for tables that do not follow it."""
        return [*self.held.values(), *self.left_out.values()]

    def _usable(self, name: str, position: Position | None, parked: list[Parked], identity: str) -> list[Parked]:
        at = lsn(position.offsets["lsn"]) if position else 0
        here = [p for p in parked if position and p.identity == identity and p.through > at]
        stale = max((p.through for p in parked if p not in here), default=0)
        # another cluster's may lie above those that are wanted
        if 0 < stale < min((p.through for p in here), default=stale + 1):
            self._taken[name] = stale
        return here

    def round(self, name: str, parked: Parked) -> Round:
        """A parked round of a target, as if it had just been read from the log."""
        return self._parking.round(name, parked)

    def applied(self, name: str, feed: Feed) -> None:
        """The target has moved on."""
        if feed.parked and feed.parked[0].through <= feed.at:
            self._taken[name] = feed.parked.pop(0).through

    def park(self, feeds: dict[str, Feed], found: Round, end: int, moment: datetime, identity: str) -> None:
        """Keep what a round has for failed tables; where that fails the slot keeps it.

        :param feeds: all tables of the run; those that the slot keeps are left out from now on.
        :param end: LSN up to which the round went.
        :param moment: time at the source up to which it went.
        :param identity: of the source.
        """
        for name, feed in self._failed(feeds).items():
            if end <= feed.reach:
                continue
            parked = Parked.of(found, feed.table.oid, end, moment, identity)
            try:
                self._parking.park(name, parked, found)
                feed.parked.append(parked)
                log.warning("%s: what the log has for it up to %s is parked", name, lsn_text(end))
            except Exception as error:
                log.warning("%s: its log cannot be parked, and holds the slot: %s", name, error)
                self.held[name] = feed.reach
                del feeds[name]

    def forget(self) -> None:
        """Let parked rounds go that are not needed; if that fails, the next run does it."""
        while self._taken:
            name, through = self._taken.popitem()
            try:
                self._parking.forget(name, through)
            except Exception as error:
                log.warning("%s: its parked rounds stay until the next run: %s", name, error)

    def behind(self, feeds: Mapping[str, Feed]) -> dict[str, int]:
        """LSNs of the tables that do not follow the log.

        :param feeds: all tables of the run.
        """
        return {name: feed.at for name, feed in self._failed(feeds).items()} | self.held

    def give_up(self, feeds: dict[str, Feed], now: int, limit: int) -> None:
        """Forget tables that are too far behind.

        :param feeds: all tables of the run; those that are given up are left out from now on.
        :param now: LSN of the log's end.
        :param limit: bytes of log.
        """
        for name, at in self.behind(feeds).items():
            if now - at > limit:
                error = full_load_needed(f"It is {now - at} bytes of log behind the source, more than {limit}", name)
                log.warning("%s", error)
                self.given_up[name] = error
                self.held.pop(name, None)
                feed = feeds.pop(name, None)
                if feed and feed.parked:
                    self._taken[name] = feed.reach
        for name, at in [*self.left_out.items()]:
            if now - at > limit:
                log.warning("%s: what the log has for it is held no longer, it is %d bytes behind", name, now - at)
                del self.left_out[name]

    @staticmethod
    def _failed(feeds: Mapping[str, Feed]) -> dict[str, Feed]:
        """Tables that take no more batches although their log can be followed."""
        return {name: feed for name, feed in feeds.items() if feed.failed and not feed.loading}
