"""Follow the names of a table's columns in the log: each column keeps its number when it is renamed.

Rows of the log have the names of their time, or none. The table has the names at the start of the reading; the effects
of statements are checked against the names in the log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from lakecdc.iceberg.widening import is_wider
from lakecdc.ingest.sources.mysql.alter_table import Alteration, Redefinition
from lakecdc.ingest.sources.mysql.table_map import REMEDY, LayoutError, Named


class ColumnNames:
    """The columns of one table at one place in the log.

    :param numbers: column numbers at the start of the reading, in row order; empty if unknown.
    :param types: Spark SQL types of the target's columns, by their names at the start of the reading.
    """

    def __init__(
        self, numbers: Mapping[str, int], types: Mapping[str, str] | None = None, excluded: Collection[str] = ()
    ) -> None:
        self.numbers = dict(numbers)
        self._types = {numbers.get(name, name.lower()): kind for name, kind in (types or {}).items()}
        self._excluded = {name.lower() for name in excluded}
        self.added: list[int] = []
        self._known = self._in_order = bool(numbers)
        self._last = max(numbers.values(), default=0)

    def alter(self, change: Alteration) -> str | None:
        """Apply a statement; return why it cannot be followed, or None."""
        here = {name.lower(): name for name in self.numbers}
        for redefinition in change.redefined:
            if why := self._redefine(redefinition, here):
                return why
        new_names: dict[str, str] = {}
        for rename in change.renamed:
            if rename.old == rename.new or (rename.optional and self._known and rename.old.lower() not in here):
                continue
            if not self._known:
                return f"renamed the column {rename.old!r}, and its columns before are unknown"
            if rename.old.lower() not in here:
                return f"renamed the column {rename.old!r}, which is unknown"
            new_names[here[rename.old.lower()]] = rename.new
        dropped = {name.lower() for name in change.dropped}
        remaining = {n: number for n, number in self.numbers.items() if n.lower() not in dropped}
        renamed = {new_names.get(name, name): number for name, number in remaining.items()}
        if len({name.lower() for name in renamed}) < len(remaining):
            return "renamed columns to names that other columns have"
        self._in_order = self._in_order and not change.moved
        self.numbers = renamed
        for name in change.added:
            # IF NOT EXISTS may name an existing column
            if name.lower() not in {n.lower() for n in self.numbers}:
                self.added.append(self._number(name))
        return None

    def _redefine(self, column: Redefinition, here: Mapping[str, str]) -> str | None:
        """Record a column's new type; return why the server may have changed its values."""
        name = column.column.lower()
        if name in self._excluded:
            return None
        of = self.numbers[here[name]] if name in here else name
        before = self._types.get(of)
        if before is not None and is_wider(before, column.type):
            self._types[of] = column.type
        elif before is None or not (before == column.type or (is_wider(column.type, before) and before != "double")):
            return (
                f"was changed by a new definition of the column {column.column!r}, whose values may have changed: it "
                f"is {column.type} now and was {before or 'of an unknown type'}"
            )
        return None

    def _number(self, name: str) -> int:
        self._last += 1
        self.numbers[name] = self._last
        return self._last

    def unnamed(self, now: Sequence[Named]) -> Sequence[Named]:
        """Return the columns of rows that have no names in the log.

        :raises LayoutError: they are uncertain.
        """
        if not self._in_order or len(self.numbers) != len(now):
            return now
        pairs = [*zip(self.numbers, now, strict=True)]
        # later statements may have moved them as well
        others = [there for name, there in pairs if name != there.name]
        for name, there in pairs:
            doubtful = (_alike(there, other) and replace(there, name=other.name) != other for other in others)
            if name != there.name and any(doubtful):
                raise LayoutError(f"The log does not name its columns, and {name!r} was renamed; {REMEDY}.")
        return [replace(there, name=name) for name, there in pairs]

    def described(self, names: Sequence[str]) -> str | None:
        """Take the names of rows, in order; return why they do not match the known columns, or None."""
        appeared = [name for name in names if name not in self.numbers]
        vanished = [name for name in self.numbers if name not in names]
        if self._known and appeared and vanished:
            return (
                f"has rows with the column {appeared[0]!r} instead of {vanished[0]!r}, and no statement in the log "
                f"explains it; if the log does not name its columns, {REMEDY}"
            )
        for name in appeared:
            self._number(name)
        self.numbers = {name: self.numbers[name] for name in names}
        self._in_order = True
        return None


def _alike(one: Named, other: Named) -> bool:
    """Check whether the log encodes values of both columns in the same way."""
    assert one.type is not None and other.type is not None
    return replace(one.type, unsigned=False) == replace(other.type, unsigned=False)
