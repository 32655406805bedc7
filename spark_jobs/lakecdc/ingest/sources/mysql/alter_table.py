"""Parse an ALTER TABLE: what it changes, and whether the log has all of it.

The server logs only the statement: rows that it rewrites or removes have no events. So only actions that leave all rows
unchanged are accepted; any other or unreadable action stops the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lakecdc.ingest.sources.mysql.sql_tokens import TableName, Token, parts, table_name
from lakecdc.ingest.sources.mysql.types import MAX_PRECISION, MysqlType

_UNREADABLE = "was changed by an ALTER TABLE that cannot be parsed reliably"
#: words after ADD or DROP that are not a column
_NO_COLUMNS = {
    *("INDEX", "KEY", "CONSTRAINT", "PRIMARY", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "PARTITION"),
    *("PERIOD", "SYSTEM"),
}
#: first words of actions that leave rows unchanged, and the second words that this requires; empty: any
_HARMLESS: dict[str, frozenset[str]] = {
    "ADD": frozenset(
        ("INDEX", "KEY", "CONSTRAINT", "PRIMARY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "FOREIGN", "CHECK",
         "PARTITION")
    ),
    "DROP": frozenset(("INDEX", "KEY", "CONSTRAINT", "PRIMARY", "FOREIGN", "CHECK")),
    "RENAME": frozenset(("INDEX", "KEY")),
    # a default, or whether a column or an index is visible
    "ALTER": frozenset(),
    **dict.fromkeys(("ENABLE", "DISABLE"), frozenset({"KEYS"})),
    **dict.fromkeys(("ANALYZE", "CHECK", "COALESCE", "OPTIMIZE", "REBUILD", "REORGANIZE"), frozenset({"PARTITION"})),
    **dict.fromkeys(("REMOVE", "UPGRADE"), frozenset({"PARTITIONING"})),
    **dict.fromkeys(("PARTITION", "ORDER"), frozenset({"BY"})),
    **dict.fromkeys(("WITH", "WITHOUT"), frozenset({"VALIDATION"})),
}  # fmt: skip
#: table options that leave rows unchanged; each has one value
_OPTIONS = {
    *("ALGORITHM", "LOCK", "AUTO_INCREMENT", "AUTOEXTEND_SIZE", "AVG_ROW_LENGTH", "CHARSET", "CHECKSUM", "COLLATE"),
    *("COMMENT", "COMPRESSION", "DELAY_KEY_WRITE", "ENCRYPTED", "ENCRYPTION", "ENCRYPTION_KEY_ID", "ENGINE"),
    *("ENGINE_ATTRIBUTE", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM", "PAGE_COMPRESSED"),
    *("PAGE_COMPRESSION_LEVEL", "ROW_FORMAT", "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE", "STATS_AUTO_RECALC"),
    *("STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "TABLESPACE", "TRANSACTIONAL"),
}
#: types to which a strict server converts a column without changing values, or refuses to
_STRICT_TYPES = {
    **{name: name.lower() for name in ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BIT")},
    **{"INTEGER": "int", "BOOL": "int", "BOOLEAN": "int"},
    **dict.fromkeys(("DECIMAL", "NUMERIC", "DEC", "FIXED"), "decimal"),
    **dict.fromkeys(("VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM"), "text"),
    **dict.fromkeys(("VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"), "blob"),
    **{"DATE": "date", "DATETIME": "datetime", "TIMESTAMP": "timestamp"},
}


class Rename(NamedTuple):
    """A renamed column.

    :param optional: the column may be missing (``IF EXISTS``).
    """

    old: str
    new: str
    optional: bool = False


class Redefinition(NamedTuple):
    """A redefined column.

    :param type: its new Spark SQL type. Values are unchanged if it is the old type, or differs only in its range.
    """

    column: str
    type: str


@dataclass
class Alteration:
    """The changes of one ALTER TABLE; column names are those before it.

    :param renamed: all at once, so columns may swap names.
    :param moved: a column moves, but not to the end.
    :param redefined: columns whose values are unchanged only if they fit their new types.
    :param refusals: why the table needs a full load.
    :param replaced: other tables whose rows it replaces.
    """

    table: TableName = ("", "")
    renamed: list[Rename] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    moved: bool = False
    redefined: list[Redefinition] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    replaced: list[TableName] = field(default_factory=list)


def read_alter_table(statement: Sequence[Token], schema: str, *, certain: bool, strict: bool) -> Alteration:
    """Parse an ALTER TABLE.

    :param schema: the session's default database.
    :param certain: every server executes all of it.
    :param strict: the server refuses values that do not fit, instead of changing them.
    """
    place = next(i for i, token in enumerate(statement) if token.bare == "TABLE")
    table, at = table_name(statement, place + 1, schema)
    # MariaDB: how long to wait for the lock
    at += {"NOWAIT": 1, "WAIT": 2}.get(statement[at].bare if at < len(statement) else "", 0)
    actions = [*parts(statement[at:])]
    # a server restricted to changing the definition refuses to touch rows
    options = [[token.bare for token in part if token.bare != "="] for part in actions]
    instant = certain and ["ALGORITHM", "INSTANT"] in options
    change = Alteration(table)
    reader = _Reader(change, schema, certain, strict, instant)
    if "IGNORE" in [token.bare for token in statement[1:place]]:
        change.refusals.append("had rows removed or changed by ALTER IGNORE TABLE")
    for part in actions:
        reader.read(part)
    dropped = {name.lower() for name in change.dropped}
    again = [name for name in change.added if name.lower() in dropped]
    if again:
        change.refusals.append(f"dropped and added the column {again[0]!r} in one statement")
    return change


@dataclass
class _Reader:
    change: Alteration
    schema: str
    certain: bool
    strict: bool
    instant: bool

    def read(self, part: Sequence[Token]) -> None:
        words, change = [token.bare for token in part], self.change
        first, second = words[0], (words + [""])[1]
        change.moved = change.moved or not {"FIRST", "AFTER"}.isdisjoint(words)
        if not {"RENAME", "CHANGE"}.isdisjoint(words[1:]):
            change.refusals.append(_UNREADABLE)
        elif "VERSIONING" in words:
            change.refusals.append("was given system versioning, or lost it")
        elif first in ("ADD", "DROP") and _is_column(words):
            named = change.added if first == "ADD" else change.dropped
            named += _columns(part)
        elif first in ("CHANGE", "MODIFY") or (first, second) == ("RENAME", "COLUMN"):
            self._read_column(part, words)
        elif first == "RENAME" and second not in _HARMLESS["RENAME"]:
            change.refusals.append("was renamed")
            self._replace(part, words)
        elif not self._is_harmless(words):
            what = " ".join(word for word in words[:2] if word)
            change.refusals.append(f"was changed by {what}, which may change rows")
            self._replace(part, words)

    def _replace(self, part: Sequence[Token], words: Sequence[str]) -> None:
        """Record the other table of an EXCHANGE, CONVERT or RENAME."""
        if words[0] == "RENAME" or "TABLE" in words:
            marks = [words.index(mark) for mark in ("TABLE", "TO", "AS", "=") if mark in words]
            self.change.replaced.append(table_name(part, (marks or [0])[0] + 1, self.schema)[0])

    def _read_column(self, part: Sequence[Token], words: Sequence[str]) -> None:
        action, at = words[0], 2 if words[1:2] == ["COLUMN"] else 1
        optional = list(words[at : at + 2]) == ["IF", "EXISTS"]
        at += 2 if optional else 0
        # places of the column's old name and its new one
        places = {"RENAME": (at, at + 2), "MODIFY": (at, at)}.get(action, (at, at + 1))
        behind = places[1] + 1
        if action == "RENAME":
            readable = len(part) == behind and words[at + 1] == "TO"
        else:
            # MariaDB also accepts a name qualified by its table
            readable = len(part) > behind and words[behind] != "."
        if not readable or not all(part[place].names for place in places):
            self.change.refusals.append(_UNREADABLE)
            return
        old, new = (part[place].name for place in places)
        if old != new and not self.certain:
            self.change.refusals.append(_UNREADABLE)
            return
        if action != "MODIFY":
            self.change.renamed.append(Rename(old, new, optional))
        if action != "RENAME" and not self.instant:
            self._redefine(old, words[behind:])

    def _redefine(self, column: str, definition: Sequence[str]) -> None:
        """Record the new type of a column, unless the server may change its values."""
        new_type = _new_type(definition)
        if new_type is None or not self.strict:
            why = "" if self.strict else ", in a session without a strict sql_mode"
            what = f"was changed by a new definition of the column {column!r}{why}, which may change its values"
            self.change.refusals.append(what)
        else:
            self.change.redefined.append(Redefinition(column, new_type))

    def _is_harmless(self, words: Sequence[str]) -> bool:
        """Check whether an action leaves all rows unchanged."""
        first, second = words[0], ([*words] + [""])[1]
        if first in _HARMLESS and (not _HARMLESS[first] or second in _HARMLESS[first]):
            # a server that is not strict replaces nulls in a new key's columns
            return self.strict or first != "ADD" or "PRIMARY" not in words
        if first == "CONVERT":
            charset = words[1:5] in (["TO", "CHARACTER", "SET", "UTF8MB4"], ["TO", "CHARSET", "UTF8MB4"])
            return charset or (self.strict and second == "TO" and "TABLE" not in words)
        return list(words) == ["FORCE"] or _are_options(words)


def _new_type(definition: Sequence[str]) -> str | None:
    """Return the Spark SQL type of a column's definition; None if even a strict server may change values.

    Servers silently change fractional seconds, trailing spaces of CHAR, padded bytes, digits of long decimals,
    two-digit years, the order within a set, JSON text, and values of generated columns.
    """
    base = _STRICT_TYPES.get(definition[0])
    if base is None or not {"AS", "GENERATED"}.isdisjoint(definition):
        return None
    sizes = [int(word) if word.isdecimal() else -1 for word in _in_parentheses(definition)]
    if base in ("datetime", "timestamp") and sizes != [6]:
        return None
    if base == "bit":
        return MysqlType(base, precision=(sizes or [1])[0]).spark
    if base == "decimal":
        precision, scale = (sizes + [10, 0])[:2] if len(sizes) != 1 else (sizes[0], 0)
        return f"decimal({precision},{scale})" if 0 <= scale <= precision <= MAX_PRECISION else None
    if base in ("float", "double") and sizes:
        return None
    unsigned = not {"UNSIGNED", "ZEROFILL"}.isdisjoint(definition)
    return MysqlType(base, unsigned).spark


def _in_parentheses(definition: Sequence[str]) -> list[str]:
    """Return the words in parentheses after a type, without commas."""
    if list(definition[1:2]) != ["("] or ")" not in definition:
        return []
    return [word for word in definition[2 : definition.index(")")] if word != ","]


def _are_options(words: Sequence[str]) -> bool:
    """Check whether an action only sets table options that leave rows unchanged."""
    left = [word for word in words if word != "="]
    while left:
        if left[0] == "DEFAULT":
            del left[0]
        if left[:2] == ["CHARACTER", "SET"]:
            left[:2] = ["CHARSET"]
        # another engine may lose rows before the next statement
        if len(left) < 2 or left[0] not in _OPTIONS or (left[0] == "ENGINE" and left[1] != "INNODB"):
            return False
        del left[:2]
    return True


def _is_column(words: Sequence[str]) -> bool:
    if words[1:3] in (["VECTOR", "INDEX"], ["VECTOR", "KEY"]):
        return False
    return words[1:2] != [] and words[1] not in _NO_COLUMNS


def _columns(part: Sequence[Token]) -> list[str]:
    """Return the column names of an ADD or DROP, with or without parentheses."""
    rest = [token for token in part[1:] if token.bare not in ("COLUMN", "IF", "NOT", "EXISTS")]
    if not rest:
        return []
    if rest[0].bare != "(":
        return [rest[0].name]
    depth, names, expected = 0, [], False
    for token in rest:
        depth += {"(": 1, ")": -1}.get(token.bare, 0)
        if expected:
            names.append(token.name)
        expected = depth == 1 and token.bare in ("(", ",")
    return names
