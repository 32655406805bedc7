"""Judge messages that tasks have set aside, and put what is known of them beside the rest of their batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from lakecdc.ingest.engine.run import SurveyNeededError
from lakecdc.ingest.engine.source_tables import feeds
from lakecdc.ingest.formats.values import Field

if TYPE_CHECKING:
    from lakecdc.contract.target import Target
    from lakecdc.ingest.engine.decoded import Decoded
    from lakecdc.ingest.engine.survey import Survey


@dataclass(frozen=True)
class Besides:
    """What is known of the messages of a batch that have not been set aside.

    :param fields: the table's columns.
    :param tables: source tables of the table's events.
    :param topics: topics of these.
    :param schema: columns of their schema; None if they have none.
    :param why: why the first of the others has been.
    """

    fields: tuple[Field, ...] = ()
    tables: tuple[str, ...] = ()
    topics: frozenset[str] = frozenset()
    schema: tuple[Field, ...] | None = None
    why: str = ""


def refuse_apart(found: Sequence[Survey], target: Target, besides: Besides, *, routed: bool) -> None:
    """Make sure that odd messages are judged as they would be among all messages of the batch.

    :param found: the odd messages.
    :param routed: the source has chosen their topics for the target.
    :raises SurveyNeededError: they may not be: they are of another table where none is named, have other schemas,
        delete by tombstones, or come unreadable from topics of which only the other messages may tell whose they are.
    """
    named = [s for s in found if s.source_table and s.events]
    mine = [s for s in named if feeds(target, str(s.source_table), s.topics if routed else ())]
    others = [s for s in named if s not in mine]
    topics = besides.topics.union(*(s.topics for s in mine))
    if (
        len({s.source_table for s in mine}.union(besides.tables)) > 1
        or any(s.tombstones for s in found)
        or any(columns != besides.schema for s in found if s not in others for columns in s.schemas.values())
        or any(s.problems and not s.events and not s.topics <= topics for s in found)
    ):
        raise SurveyNeededError(besides.why)


def together(plain: Decoded, odd: Decoded) -> Decoded:
    """Return what was decoded at once with the messages beside it that are none of its changes.

    :param odd: what is known of these.
    """
    rejected = [one for one in (plain.rejected, odd.rejected) if one is not None]
    newest = max((n for n in (plain.newest, odd.newest) if n is not None), default=None)
    return replace(plain, rejected=reduce(add, rejected) if rejected else None, newest=newest)


def with_told(fields: Sequence[Field], columns: Sequence[Field]) -> tuple[Field, ...]:
    """Return the columns of a table with the types that messages have told, and those that it lacks."""
    told = {c.name: c.type for c in columns}
    known = tuple(f.with_type(told[f.name]) if told.get(f.name, f.type) != f.type else f for f in fields)
    names = {f.name for f in fields}
    return (*known, *(Field(c.name, c.type) for c in columns if c.name not in names))
