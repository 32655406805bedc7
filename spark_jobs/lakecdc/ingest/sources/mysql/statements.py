"""Find the effects of a logged statement on tables that row events do not show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from lakecdc.ingest.sources.mysql.alter_table import Alteration, read_alter_table
from lakecdc.ingest.sources.mysql.sql_tokens import Token, parts, table_name, tokens

#: bits of session modes in which the server refuses values that do not fit a transactional table
STRICT = 0x200000 | 0x400000
#: first words of statements that change only rows that the statement names or that have row events
_HARMLESS = {
    *("ALTER", "ANALYZE", "CHECK", "CREATE", "DROP", "FLUSH", "GRANT", "INSTALL", "OPTIMIZE", "RENAME", "REPAIR"),
    *("REVOKE", "TRUNCATE", "UNINSTALL"),
    # parts of a transaction; the log has its end separately
    *("COMMIT", "RELEASE", "ROLLBACK", "SAVEPOINT", "XA"),
}
_HARMLESS_SETTINGS = ("PASSWORD", "DEFAULT", "ROLE")
#: a database without triggers that never feeds a table; services write to it by statements
_SYSTEM = "mysql"
#: words before a parenthesis that call no writing function
_NO_CALLS = {*("VALUES", "VALUE", "IN", "AND", "OR", "=", ",", "("), *("NOW", "UNIX_TIMESTAMP", "CURRENT_TIMESTAMP")}


@dataclass(frozen=True)
class Effect:
    """The effect of a statement on one table.

    :param kind: ``truncate`` empties it; ``altered`` changes its columns; ``lost`` changes or replaces its rows without
        row events.
    :param schema: None is every schema.
    :param table: None is every table of the schema.
    :param detail: of ``lost``.
    :param change: of ``altered``.
    """

    kind: Literal["truncate", "altered", "lost"]
    schema: str | None
    table: str | None
    detail: str = ""
    change: Alteration = field(default_factory=Alteration)


def effects(statement: str, schema: str, sql_mode: int = 0) -> list[Effect]:
    """List the effects of a statement on tables.

    An unknown statement may have changed any table, because functions and triggers can.

    :param schema: the session's default database.
    :param sql_mode: the session's mode, as logged.
    """
    pieces = _without_settings(tokens(statement, sql_mode))
    words = [token.bare for token in pieces[:6]]
    if not words:
        return []
    # MariaDB executes a statement after ANALYZE
    if words[0] not in _HARMLESS or (words[0] == "ANALYZE" and words[1:2] not in (["TABLE"], ["TABLES"])):
        return list(_changed_by(pieces, schema))
    if words[0] == "TRUNCATE":
        return [Effect("truncate", *table_name(pieces, 2 if "TABLE" in words[1:2] else 1, schema)[0])]
    if words[0] == "DROP":
        return list(_dropped(pieces, schema))
    if words[0] == "RENAME" and words[1:2] in (["TABLE"], ["TABLES"]):
        return list(_renamed(pieces, schema))
    if words[0] == "CREATE":
        return list(_created(pieces, schema))
    if words[0] == "ALTER" and "TABLE" in words[1:4]:
        # it is unknown which servers execute such a comment
        certain = "/*!" not in statement and "/*M!" not in statement
        return list(_altered(pieces, schema, certain, bool(sql_mode & STRICT)))
    return []


def first_words(statement: bytes) -> tuple[str, str]:
    """Return the first two words in upper case, comments left out."""
    pieces = tokens(statement[:200].decode("utf-8", "replace"))
    first, second, *_ = [*(token.bare for token in pieces), "", ""]
    return first, second


def _without_settings(statement: list[Token]) -> list[Token]:
    """Remove MariaDB's ``SET STATEMENT … FOR``."""
    if [token.bare for token in statement[:2]] == ["SET", "STATEMENT"]:
        place = next((i for i, token in enumerate(statement) if token.bare == "FOR"), len(statement))
        return statement[place + 1 :]
    return statement


def _changed_by(pieces: Sequence[Token], schema: str) -> Iterator[Effect]:
    """Yield effects of a statement that may change rows without row events."""
    words = [token.bare for token in pieces]
    if words[0] == "SET" and words[1:2] and words[1] in _HARMLESS_SETTINGS:
        return
    if words[:2] == ["DELETE", "FROM"] and words[2:] == ["", ".", ""]:
        # a server logs this when it empties an in-memory table after its start
        yield Effect("lost", *table_name(pieces, 2, schema)[0], "was emptied by a logged DELETE statement")
    elif not _writes_to_system_only(pieces, schema):
        yield Effect("lost", None, None, f"may have been changed by a logged {words[0]} statement, not by row events")


def _writes_to_system_only(pieces: Sequence[Token], schema: str) -> bool:
    """Check whether a statement writes only to one system table, without functions that may write elsewhere."""
    words = [token.bare for token in pieces]
    behind = {"INSERT": "INTO", "REPLACE": "INTO", "DELETE": "FROM", "UPDATE": "UPDATE"}.get(words[0])
    if behind not in words[:3]:
        return False
    (database, _table), end = table_name(pieces, words.index(behind) + 1, schema)
    next_word = words[end] if end < len(words) else "WHERE"
    if database.lower() != _SYSTEM or next_word != {"DELETE": "WHERE", "UPDATE": "SET"}.get(words[0], next_word):
        return False
    calls = {words[at - 1] for at in range(end + 1, len(words)) if words[at] == "("}
    return calls <= _NO_CALLS


def _created(pieces: Sequence[Token], schema: str) -> Iterator[Effect]:
    words = [token.bare for token in pieces]
    replacing = words[1:3] == ["OR", "REPLACE"]
    at = 3 if replacing else 1
    temporary = words[at : at + 1] == ["TEMPORARY"]
    at += temporary
    if words[at : at + 1] != ["TABLE"]:
        return
    # such a statement's rows have row events unless the statement has them itself
    if "SELECT" in words or any(pair in (("VALUES", "("), ("VALUES", "ROW")) for pair in pairwise(words)):
        yield from _changed_by(pieces, schema)
    if replacing and not temporary:
        yield Effect("lost", *table_name(pieces, at + 1, schema)[0], "was recreated")


def _altered(pieces: Sequence[Token], schema: str, certain: bool, strict: bool) -> Iterator[Effect]:
    change = read_alter_table(pieces, schema, certain=certain, strict=strict)
    for reason in change.refusals[:1]:
        yield Effect("lost", *change.table, reason)
    for other in change.replaced:
        yield Effect("lost", *other, "was replaced by another table")
    yield Effect("altered", *change.table, change=change)


def _dropped(pieces: Sequence[Token], schema: str) -> Iterator[Effect]:
    what = pieces[1].bare if len(pieces) > 2 else ""
    if what in ("DATABASE", "SCHEMA"):
        (_owner, database), _end = table_name(pieces, 2, schema)
        yield Effect("lost", database, None, "was dropped with its database")
    if what in ("TABLE", "TABLES"):
        for part in parts(pieces[2:]):
            yield Effect("lost", *table_name(part, 0, schema)[0], "was dropped")


def _renamed(pieces: Sequence[Token], schema: str) -> Iterator[Effect]:
    for part in parts(pieces[2:]):
        old, at = table_name(part, 0, schema)
        to = next((i for i in range(at, len(part)) if part[i].bare == "TO"), len(part))
        yield Effect("lost", *old, "was renamed")
        yield Effect("lost", *table_name(part, to + 1, schema)[0], "was replaced by a renamed table")
