"""What a statement in the log does to tables, beyond what row events tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|\#[^\n]*|--(?=\s|$)[^\n]*|/\*(?!M?!).*?\*/|/\*M?!\d*|\*/)
  | (?P<quoted>`(?:[^`]|``)*`|"(?:[^"\\]|""|\\.)*")
  | (?P<text>'(?:[^'\\]|''|\\.)*')
  | (?P<word>[\w$\u0080-\uffff]+)
  | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_CHANGES_ROWS = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD"}
_PARTITION_RISKS = {"DROP", "TRUNCATE", "EXCHANGE", "CONVERT", "DISCARD", "IMPORT"}
_NO_COLUMNS = {
    *("INDEX", "KEY", "CONSTRAINT", "PRIMARY", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "PARTITION"),
    *("PERIOD", "SYSTEM"),
}
_NOISE = {"IF", "NOT", "EXISTS"}


@dataclass(frozen=True)
class Effect:
    """What a statement does to one table.

    :param kind: ``truncate`` empties it; ``altered`` changes its columns; ``lost`` changes rows, or which rows the name
        stands for, in a way that no row event tells.
    :param table: None is every table of the schema.
    :param detail: what happened, for ``lost``; the added column, for ``altered``.
    """

    kind: Literal["truncate", "altered", "lost"]
    schema: str
    table: str | None
    detail: str = ""


@dataclass(frozen=True)
class Token:
    """A piece of a statement.

    :param name: the text without quotes; empty for a string literal.
    :param bare: not quoted, in upper case; empty for what is quoted.
    """

    name: str
    bare: str


def tokens(statement: str) -> list[Token]:
    """Cut a statement up, without comments; what stands in executable comments stays."""
    found = []
    for match in _TOKEN.finditer(statement):
        text = match.group()
        if match.lastgroup == "quoted":
            found.append(Token(text[1:-1].replace(text[0] * 2, text[0]), ""))
        elif match.lastgroup == "text":
            found.append(Token("", ""))
        elif match.lastgroup != "space":
            found.append(Token(text, text.upper()))
    return found


def effects(statement: str, schema: str) -> list[Effect]:
    """What a statement does to tables.

    :param schema: the session's default database.
    """
    found = _without_settings(tokens(statement))
    words = [token.bare for token in found[:6]]
    if not words:
        return []
    if words[0] in _CHANGES_ROWS:
        return list(_by_statement(found, schema, words[0]))
    if words[0] == "TRUNCATE":
        return [Effect("truncate", *_name(found, 2 if "TABLE" in words[1:2] else 1, schema)[0])]
    if words[0] == "DROP":
        return list(_dropped(found, schema))
    if words[0] == "RENAME" and words[1:2] in (["TABLE"], ["TABLES"]):
        return list(_renamed(found, schema))
    if words[:3] == ["CREATE", "OR", "REPLACE"] and "TABLE" in words[3:5] and "TEMPORARY" not in words[3:4]:
        return [Effect("lost", *_name(found, words.index("TABLE") + 1, schema)[0], "was made anew")]
    if words[0] == "ALTER" and "TABLE" in words[1:4]:
        return list(_altered(found, schema))
    return []


def first_words(statement: bytes) -> tuple[str, str]:
    """The first two words in upper case, comments left out."""
    found = tokens(statement[:200].decode("utf-8", "replace"))
    bare = [token.bare for token in found[:2]]
    return (bare + ["", ""])[0], (bare + ["", ""])[1]


def _without_settings(found: list[Token]) -> list[Token]:
    """Leave out MariaDB's ``SET STATEMENT … FOR``."""
    if [token.bare for token in found[:2]] == ["SET", "STATEMENT"]:
        place = next((i for i, token in enumerate(found) if token.bare == "FOR"), len(found))
        return found[place + 1 :]
    return found


def _name(found: Sequence[Token], at: int, schema: str) -> tuple[tuple[str, str], int]:
    """The table name at a place, and where it ends."""
    while at < len(found) and found[at].bare in _NOISE:
        at += 1
    if at + 2 < len(found) and found[at + 1].bare == ".":
        return (found[at].name, found[at + 2].name), at + 3
    return (schema, found[at].name if at < len(found) else ""), at + 1


def _by_statement(found: list[Token], schema: str, word: str) -> Iterator[Effect]:
    for place, token in enumerate(found):
        if token.name and token.bare not in ("SELECT", "FROM", "WHERE", "INTO", ".", ",", "(", ")"):
            qualified = place > 1 and found[place - 1].bare == "."
            owner = found[place - 2].name if qualified else schema
            yield Effect("lost", owner, token.name, f"was changed by a logged {word} statement, not by row events")


def _dropped(found: list[Token], schema: str) -> Iterator[Effect]:
    if len(found) > 2 and found[1].bare in ("DATABASE", "SCHEMA"):
        (_owner, database), _end = _name(found, 2, schema)
        yield Effect("lost", database, None, "was dropped with its database")
    if len(found) < 3 or found[1].bare not in ("TABLE", "TABLES"):
        return
    at = 2
    while at < len(found):
        name, at = _name(found, at, schema)
        yield Effect("lost", *name, "was dropped")
        if at >= len(found) or found[at].bare != ",":
            return
        at += 1


def _renamed(found: list[Token], schema: str) -> Iterator[Effect]:
    at = 2
    while at < len(found):
        old, at = _name(found, at, schema)
        while at < len(found) and found[at].bare != "TO":
            at += 1
        new, at = _name(found, at + 1, schema)
        yield Effect("lost", *old, "was renamed")
        yield Effect("lost", *new, "was replaced by a renamed table")
        if at >= len(found) or found[at].bare != ",":
            return
        at += 1


def _altered(found: list[Token], schema: str) -> Iterator[Effect]:
    place = next(i for i, token in enumerate(found) if token.bare == "TABLE")
    name, at = _name(found, place + 1, schema)
    added: list[str] = []
    dropped: list[str] = []
    for part in _parts(found[at:]):
        words = [token.bare for token in part]
        first, second = words[0], (words + [""])[1]
        if first in ("ADD", "DROP") and _is_column(words):
            columns = _columns(part)
            (added if first == "ADD" else dropped).extend(columns)
        elif reason := _risk(part, words, first, second):
            yield Effect("lost", *name, reason)
            if first in ("EXCHANGE", "CONVERT") or (first == "RENAME" and second not in ("COLUMN", "INDEX", "KEY")):
                marks = [words.index(mark) for mark in ("TABLE", "TO", "AS", "=") if mark in words]
                other, _end = _name(part, (marks or [0])[0] + 1, schema)
                yield Effect("lost", *other, "was replaced by another table")
    yield Effect("altered", *name)
    for column in added:
        again = column.lower() in {c.lower() for c in dropped}
        kind: Literal["lost", "altered"] = "lost" if again else "altered"
        yield Effect(kind, *name, f"dropped and added the column {column!r} at once" if again else column)


def _parts(found: Sequence[Token]) -> Iterator[list[Token]]:
    """Cut at commas outside parentheses."""
    depth = 0
    part: list[Token] = []
    for token in found:
        depth += {"(": 1, ")": -1}.get(token.bare, 0)
        if token.bare == "," and not depth:
            if part:
                yield part
            part = []
        else:
            part.append(token)
    if part:
        yield part


def _risk(part: Sequence[Token], words: Sequence[str], first: str, second: str) -> str | None:
    """Why a part of ALTER TABLE makes the log's rows and the table's differ; None if it does not."""
    if first == "CHANGE":
        names = [token.name for token in part if token.bare not in ("CHANGE", "COLUMN", *_NOISE)]
        renamed = [name.lower() for name in names[:1]] != [name.lower() for name in names[1:2]]
        return f"renamed the column {names[0]!r}" if renamed and names else None
    if first == "RENAME":
        if second in ("INDEX", "KEY"):
            return None
        return "renamed a column" if second == "COLUMN" else "was renamed"
    if first in _PARTITION_RISKS and second in ("PARTITION", "TABLESPACE", "TABLE"):
        return f"was changed by {first} {second}"
    return None


def _is_column(words: list[str]) -> bool:
    return words[1:2] != [] and words[1] not in _NO_COLUMNS


def _columns(part: Sequence[Token]) -> list[str]:
    """The names that an ADD or DROP of columns gives, in parentheses or not."""
    rest = [token for token in part[1:] if token.bare not in ("COLUMN", *_NOISE)]
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
