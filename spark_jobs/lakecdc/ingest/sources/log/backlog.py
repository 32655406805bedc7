"""Keep the log that refused and failed tables still need: parked in the lake, retained at the source, or given up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic

from pyspark.sql import SparkSession

from lakecdc.contract.errors import LakecdcError, UnsupportedError
from lakecdc.ingest.sources.database import full_load_needed
from lakecdc.ingest.sources.log.feed import F
from lakecdc.ingest.sources.log.parking import Parked, Parking
from lakecdc.ingest.sources.log.rounds import Round
from lakecdc.metadata.positions import Position
from lakecdc.model.positions import log_position

log = logging.getLogger(__name__)


class Backlog(Generic[F]):
    """The log that tables of a run need but do not read now; places in the log are numbers.

    :ivar retained: places from which the source must keep the log for tables whose part cannot be parked.
    :ivar left_out: places from which the source must keep the log for tables that the run does not feed.
    :ivar given_up: tables whose log is no longer kept, and why; they need a full load.
    """

    def __init__(self, spark: SparkSession, catalog: str) -> None:
        self.parking = Parking(spark, catalog)
        # parked rounds that are no longer needed, by target, up to a place
        self._settled: dict[str, int] = {}
        # parked rounds after a gap, because the table was rolled back, by target, up to a place
        self._behind_a_gap: dict[str, int] = {}
        self.retained: dict[str, int] = {}
        self.left_out: dict[str, int] = {}
        self.given_up: dict[str, Exception] = {}

    def load(
        self, positions: Mapping[str, Position | None], identity: str
    ) -> tuple[dict[str, list[Parked]], dict[str, LakecdcError]]:
        """Load the parked rounds that the targets still need, and schedule the deletion of the others.

        :return: rounds, and errors of the targets whose rounds cannot be loaded.
        """
        parked, failed = self.parking.load(positions)
        return {name: self._usable(name, positions[name], rounds, identity) for name, rounds in parked.items()}, failed

    @property
    def retained_places(self) -> list[int]:
        """Places from which the source must keep the log for tables that do not follow it."""
        return [*self.retained.values(), *self.left_out.values()]

    def _usable(self, name: str, position: Position | None, parked: list[Parked], identity: str) -> list[Parked]:
        at = log_position(position)
        here = [p for p in parked if at and p.identity == identity and p.through > at.number]
        stale = max((p.through for p in parked if p not in here), default=0)
        # rounds of another cluster may lie above the needed ones
        if 0 < stale < min((p.through for p in here), default=stale + 1):
            self._settled[name] = stale
        places = [at.number if at else 0, *(p.through for p in here)]
        # a table that was rolled back lacks earlier rounds
        gap = next((i for i, p in enumerate(here) if p.since != places[i]), len(here))
        if here and gap == 0:
            self._behind_a_gap[name] = here[-1].through
        return here[:gap]

    def applied(self, name: str, feed: F) -> None:
        """Record that the target has applied a round."""
        if feed.parked and feed.parked[0].through <= feed.at:
            self._settled[name] = feed.parked.pop(0).through

    def park(self, feeds: dict[str, F], log_round: Round[Any], position: Callable[[F], Position]) -> None:
        """Park a round's events of failed tables; if that fails, the source keeps the log.

        :param feeds: all tables of the run; those whose log the source keeps are removed.
        """
        end = log_round.end
        for name, feed in self._failed(feeds).items():
            if end.at.number <= feed.reach:
                continue
            relation, after = feed.relation, position(feed)
            summary = log_round.summary.of_table(relation).to_json()
            parked = Parked(end.at.number, end.time, after.identity, relation, summary, after.offsets, feed.reach)
            try:
                if feed.table.target.feed:
                    raise UnsupportedError("other jobs feed it too, and would park rounds under the same name")
                if name in self._behind_a_gap:
                    # the log is read again and would be parked twice
                    self.parking.forget(name, self._behind_a_gap.pop(name))
                log_round.summary.check_parkable(relation)
                self.parking.park(name, parked, log_round.of_table(relation) if log_round.events(relation) else None)
                feed.parked.append(parked)
                log.warning("%s: its log up to %s is parked", name, end.at)
            except Exception as error:
                log.warning("%s: its log cannot be parked, the source keeps it: %s", name, error)
                self.retained[name] = feed.reach
                del feeds[name]

    def forget(self) -> None:
        """Delete parked rounds that are no longer needed; if that fails, the next run does it."""
        while self._settled:
            name, through = self._settled.popitem()
            try:
                self.parking.forget(name, through)
            except Exception as error:
                log.warning("%s: its parked rounds stay until the next run: %s", name, error)

    def behind(self, feeds: dict[str, F]) -> dict[str, int]:
        """Return the places of the tables that do not follow the log."""
        return {name: feed.at for name, feed in self._failed(feeds).items()} | self.retained

    def give_up(self, feeds: dict[str, F], now: int, limit: int) -> None:
        """Give up tables that are too far behind.

        :param feeds: all tables of the run; those that are given up are removed.
        :param limit: bytes of log.
        """
        for name, at in self.behind(feeds).items():
            if now - at > limit:
                error = full_load_needed(f"It is {now - at} bytes of log behind the source, more than {limit}", name)
                log.warning("%s", error)
                self.given_up[name] = error
                self.retained.pop(name, None)
                feed = feeds.pop(name, None)
                if feed and feed.parked:
                    self._settled[name] = feed.reach
        for name, at in [*self.left_out.items()]:
            if now - at > limit:
                log.warning("%s: its log is no longer kept, the table is %d bytes behind", name, now - at)
                del self.left_out[name]

    @staticmethod
    def _failed(feeds: dict[str, F]) -> dict[str, F]:
        """Return failed tables whose log can be followed."""
        return {name: feed for name, feed in feeds.items() if feed.failed and not feed.loading}
