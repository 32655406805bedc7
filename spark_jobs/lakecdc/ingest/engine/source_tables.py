"""Decide which source tables feed a target, and which messages without a row event belong to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Target
from lakecdc.ingest.engine.message_facts import MessageFacts


def feeds(target: Target, source_table: str, topics: Iterable[str] = ()) -> bool:
    """Check whether a source table feeds the target.

    :param topics: topics of its messages, if the source routes them to the target; a topic named like the table stands
        for it, unless the target names another one.
    """
    if target.source_tables:
        return target.matches(source_table)
    named = target.source_table
    if any(_ends(topic, source_table) and (named is None or _ends(topic, named)) for topic in topics):
        return True
    if named:
        return _ends(source_table, named)
    # Oracle's names are in upper case
    return _ends(source_table.lower(), target.source_name.lower())


def _ends(name: str, end: str) -> bool:
    return f".{name}".endswith(f".{end}")


def only_source(target: Target, source_tables: Sequence[str], topics: Collection[str]) -> str | None:
    """Return the one source table of a batch's events; None for shards, and if the topic stands for it.

    :param source_tables: source tables of the events; at most one for a target without shards.
    """
    named = [name for name in source_tables if name not in topics]
    return named[0] if named and not target.source_tables else None


def is_another(target: Target, known: str, source_table: str) -> bool:
    """Check whether events are of another source table than the one that has fed the target.

    :param known: name of that table; messages may have a part of it, or another case.
    """
    if target.source_table and "." in target.source_table:
        return False
    one, other = known.lower(), source_table.lower()
    return not (_ends(one, other) or _ends(other, one))


def shards_mix(target: Target) -> bool:
    """Check whether a row may come from several shards, whose positions cannot be compared."""
    return bool(target.source_tables) and target.source_column not in target.key


def choose(target: Target, messages: Sequence[MessageFacts], *, routed: bool = False) -> list[MessageFacts]:
    """Return the source tables that feed a target.

    :param routed: the source routes their topics to the target.
    :raises InputError: there are several, and the target does not declare it.
    """
    mine = [s for s in messages if feeds(target, str(s.source_table), s.topics if routed else ())]
    if len(mine) > 1 and not target.source_tables:
        raise InputError(
            f"The events are of several source tables: {', '.join(sorted(str(s.source_table) for s in mine))}.",
            table=target.table,
            hint='Set "source_table" in the target to one of them, with its schema, or "source_tables" to all of them.',
        )
    return mine


def is_mine(
    one: MessageFacts, target: Target, topics: frozenset[str], others: Sequence[MessageFacts], *, adopt: bool
) -> bool:
    """Check whether messages without a row event belong to this table: in its own topic, or in no other table's.

    :param topics: topics of the table's events.
    """
    if not one.source_table:
        return adopt or bool(one.events)
    stem = target.source_name.rpartition(".")[2]
    named = one.source_table.rpartition(".")[2] == stem
    elsewhere = bool(one.topics & {t for s in others for t in s.topics})
    return bool(one.topics & topics) or (named or adopt) and not elsewhere


def topics_of(target: Target, chosen: Sequence[MessageFacts], read: Sequence[MessageFacts]) -> list[str]:
    """Return the topics of this table's tombstones: topics of its events, or named like it and not another's."""
    mine = {t for s in chosen for t in s.topics if s.source_table or s.events}
    others = {t for s in read if s not in chosen and s.source_table for t in s.topics}
    stem = target.source_name.rpartition(".")[2]
    alike = {t for s in read for t in s.topics if t.rpartition(".")[2] == stem}
    return sorted((mine | alike) - others)
