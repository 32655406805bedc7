"""The setting ``merge`` of a target: the rules that merge several events of a key into one row (``ingest.merging``)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal, cast, get_args

from lakecdc.contract.aggregating import AggregateColumn, aggregate_mistakes, misfits_of_types

if TYPE_CHECKING:
    from lakecdc.contract.target import Target

#: value of a column after several events: the last or first one in the order of the events, with or without nulls, or
#: the lowest, highest or combined one of all
Rule = Literal["last", "last_non_null", "first", "first_non_null", "min", "max", "bool_or", "bool_and"]
_BOOLEAN = ("bool_or", "bool_and")
#: prefix of the columns that lakecdc adds to a merged table for the order of some values
ORDER_PREFIX = "_lakecdc_order_"
# part of a table property's name
_FEED = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True)
class MergeGroup:
    """Columns that one stream feeds, with their own order.

    :param columns: its columns; none is a key column or in another group.
    :param sequence: column of the event that orders the group: an event without a value, or with a lower one than the
        row's, does not change the group. It belongs to the group.
    :param source_table: the one source table, ``schema.table`` or its end, whose events feed the group, in their own
        order; with ``source_tables``.
    :param name: of the group; default: ``sequence``, or the last part of ``source_table``.
    """

    columns: tuple[str, ...]
    sequence: str | None = None
    source_table: str | None = None
    name: str | None = None

    @property
    def title(self) -> str:
        """Return the name of the group."""
        return self.name or self.sequence or (self.source_table or "").rpartition(".")[2]

    @property
    def members(self) -> tuple[str, ...]:
        """Return the columns of the group, ``sequence`` included."""
        more = (self.sequence,) if self.sequence and self.sequence not in self.columns else ()
        return (*self.columns, *more)


@dataclass(frozen=True)
class Merge:
    """Rules that merge the events of a key into its row.

    :param engine: ``first_row`` keeps the first row of each key and drops all later ones; ``aggregate`` makes one row
        of all rows of the source that have the same values of ``group_by``.
    :param default: rule of the columns that have none and are in no group.
    :param columns: rules by column: ``last`` (as without ``merge``), ``last_non_null``, ``first``, ``first_non_null``,
        ``min``, ``max``, ``bool_or`` or ``bool_and``. With ``aggregate``: all columns beside ``group_by``, as ``sum``,
        ``count``, ``min``, ``max``, ``bool_or``, ``bool_and``, ``collect_list`` or ``collect_set`` of a column, such as
        ``sum(amount)``; ``count(*)`` counts rows.
    :param group_by: with ``aggregate``: columns of the source that are the key of the table.
    :param groups: columns with their own order.
    :param deletes: effect of a delete: ``remove`` removes the row and what was merged into it, ``ignore`` leaves it,
        ``group`` empties the groups of its source table, and removes the row once all groups are deleted; default:
        ``group`` if source tables feed groups, else ``remove``.
    """

    engine: Literal["first_row", "aggregate"] | None = None
    default: Rule = "last"
    columns: dict[str, str] = field(default_factory=dict)
    group_by: tuple[str, ...] = ()
    groups: tuple[MergeGroup, ...] = ()
    deletes: Literal["remove", "ignore", "group"] | None = None

    @property
    def aggregates(self) -> tuple[AggregateColumn, ...]:
        """Return the columns beside ``group_by``; none unless the engine is ``aggregate``."""
        of_engine = self.columns if self.engine == "aggregate" else {}
        return tuple(AggregateColumn.parse(name, text) for name, text in of_engine.items())

    @property
    def by_source_table(self) -> bool:
        """Return whether source tables feed groups."""
        return any(group.source_table for group in self.groups)

    @property
    def on_delete(self) -> Literal["remove", "ignore", "group"]:
        """Return the effect of a delete."""
        return self.deletes or ("group" if self.by_source_table else "remove")

    def encode(self) -> str:
        """Return the rules as JSON, equal for equal rules."""
        given = {name: value for name, value in asdict(self).items() if value}
        return json.dumps(given | {"deletes": self.on_delete}, sort_keys=True)

    def group_of(self, source_table: str) -> MergeGroup | None:
        """Return the group that only one source table feeds, in the order of its events; None without one."""
        return next(iter(self.groups_of(source_table)), None)

    def groups_of(self, source_table: str) -> list[MergeGroup]:
        """Return the groups that only one source table feeds, in the order of its events."""
        named = (g for g in self.groups if g.source_table and not g.sequence)
        return [g for g in named if f".{source_table}".endswith(f".{g.source_table}")]

    def rule_of(self, column: str) -> Rule:
        """Return the rule of a column outside groups."""
        return "first" if self.engine == "first_row" else cast(Rule, self.columns.get(column, self.default))

    def misfits(self, types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the columns, given by their Spark SQL types, whose rules do not fit, and why."""
        if self.engine == "aggregate":
            yield from misfits_of_types(self.aggregates, types)
            return
        grouped = {name for group in self.groups for name in group.members}
        sequences = {group.sequence for group in self.groups}
        for name, kind in types.items():
            rule = "max" if name in sequences else "last" if name in grouped else self.rule_of(name)
            why = _refusal(rule, kind)
            if why:
                yield name, why

    def mistakes(self, key: Sequence[str], sharded: bool) -> Iterator[tuple[str, str | None]]:
        """Yield the mistakes, each with a hint.

        :param key: of the target, as far as it is set.
        :param sharded: several source tables feed the target.
        """
        if self.engine == "aggregate":
            if self.default != "last" or self.groups or self.deletes:
                hint = "Remove default, groups and deletes: deleted rows are subtracted."
                yield "merge.engine is 'aggregate', which only has group_by and columns.", hint
            yield from aggregate_mistakes(self.aggregates, self.group_by)
            return
        if self.group_by:
            yield 'merge has a group_by, which is for "engine": "aggregate".', None
        if self.engine and (self.columns or self.groups or self.default != "last"):
            yield "merge.engine is 'first_row', which has no other rules.", "Remove default, columns and groups."
        yield from self._mistakes_of_columns(key)
        for group in self.groups:
            yield from self._mistakes_of_group(group, sharded)
        titles = [group.title.lower() for group in self.groups]
        if len(set(titles)) < len(titles):
            yield "Groups of merge share a name.", 'Give each another "name".'
        emptied = [group for group in self.groups if group.source_table and not group.sequence]
        if self.on_delete == "group" and (not emptied or len(emptied) < len(self.groups)):
            hint = 'Set "deletes" to remove or ignore, or give every group a source_table and no sequence.'
            yield "A delete cannot empty a group that is ordered by a sequence, because a delete has no sequence.", hint

    def _mistakes_of_columns(self, key: Sequence[str]) -> Iterator[tuple[str, str | None]]:
        for name, text in self.columns.items():
            if AggregateColumn.parse(name, text).function in ("sum", "count", "collect_list", "collect_set"):
                hint = 'One row of the source makes a row here, so use "last". For many, set "engine": "aggregate".'
                yield f"merge.columns.{name} is {text!r}, a function of several rows.", hint
            if text not in get_args(Rule):
                yield f"merge.columns.{name} is {text!r}.", f"It must be one of {', '.join(map(repr, get_args(Rule)))}."
        members = [name for group in self.groups for name in group.members]
        for name in sorted({*members, *self.columns} & {*key}):
            yield f"merge names the key column {name!r}, which is never merged.", None
        for name in sorted({*members} & {*self.columns}):
            yield f"merge has the column {name!r} in a group and in columns.", "Remove it from one of them."
        for name in sorted({name for name in members if members.count(name) > 1}):
            yield f"merge has the column {name!r} in several groups.", None

    def _mistakes_of_group(self, group: MergeGroup, sharded: bool) -> Iterator[tuple[str, str | None]]:
        if not group.columns:
            yield f"The group {group.title!r} of merge has no columns.", None
        if not (group.sequence or group.source_table):
            hint = 'Set "sequence" to a column of the event, or "source_table".'
            yield f"The group of {', '.join(group.columns)} in merge has no order.", hint
        if group.source_table and not sharded:
            hint = 'Name all source tables as "source_tables" of the target.'
            yield f"The group {group.title!r} of merge has a source_table, but one table feeds the target.", hint


def _refusal(rule: Rule, kind: str) -> str | None:
    """Return why a rule does not fit a column of a Spark SQL type; None if it does."""
    if rule in _BOOLEAN and kind != "boolean":
        return f"{rule} is for boolean columns, not for {kind}"
    if rule in ("min", "max") and kind.startswith(("map", "variant", "array", "struct")):
        return f"{rule} compares values, and values of type {kind} have no order"
    return None


def merge_mistakes(target: Target) -> Iterator[tuple[str, str | None]]:
    """Yield the mistakes in the setting merge of a target, each with a hint."""
    merge = target.merge
    if merge is None:
        return
    if not target.keyed:
        yield (
            f"merge is set, but mode {target.mode!r} has several rows per key.",
            "Use upsert, merge or auto.",
        )
    if target.clean and (target.clean.filter or target.clean.compute):
        hint = "Use only rename and select, and filter or compute in a view."
        yield "merge is set, but clean filters or computes single events, not merged rows.", hint
    sharded = bool(target.source_tables or target.feed) and not target.is_pattern
    yield from merge.mistakes(target.key, sharded)
    if merge.engine == "aggregate":
        yield from _aggregate_mistakes(target)
    for group in merge.groups:
        others_feed = bool(target.feed) or not group.source_table
        if not others_feed and target.source_tables and not target.matches(str(group.source_table)):
            yield f"source_tables do not match {group.source_table!r}, the source of a group of merge.", None
    for column, why in merge.misfits({name: kind for name, kind in target.columns.items() if name not in target.key}):
        yield f"The rule of the column {column!r} in merge does not fit: {why}.", None


def feed_mistakes(target: Target) -> Iterator[tuple[str, str | None]]:
    """Yield the mistakes in the setting feed of a target, each with a hint."""
    merge = target.merge
    if not target.feed:
        return
    if not _FEED.fullmatch(target.feed):
        yield f"feed is {target.feed!r}.", "Use lower-case letters, digits and underscores."
    if merge is None or not merge.groups:
        yield (
            "feed is set, but merge has no groups, and only groups can be fed by several jobs.",
            "Set groups, or remove feed.",
        )
    elif merge.on_delete == "remove":
        hint = 'Set "deletes" to group or ignore.'
        yield "feed is set, and a delete would remove what other jobs feed.", hint
    elif merge.by_source_table and not target.source_tables and merge.group_of(target.source_name) is None:
        hint = "Name the source table of one of them as source_table of the target."
        yield f"feed is set, but {target.source_name!r} is the source_table of no group of merge.", hint


def _aggregate_mistakes(target: Target) -> Iterator[tuple[str, str | None]]:
    if not target.history_table:
        hint = "Set history_table: its events are needed to subtract values and to rebuild rows."
        yield "merge.engine is 'aggregate', but it has no history_table.", hint
    if target.mode != "upsert":
        yield f"merge.engine is 'aggregate', and mode is {target.mode!r}.", "Use mode upsert."
    if not target.key:
        yield "merge.engine is 'aggregate', but it has no key.", 'Set "key": columns that identify a row of the source.'
    if target.is_pattern:
        yield "merge.engine is 'aggregate', and a pattern matches many tables.", "Name a target for each table."
