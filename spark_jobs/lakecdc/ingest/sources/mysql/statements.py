"""What a statement in the log does to tables, beyond what row events tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

#: modes of a session, as bits, that change how its statements are cut up
ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 0x4, 0x100000
_WORD = r"[\w$\u0080-\uffff]+"
_CHANGES_ROWS = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD"}
_PARTITION_RISKS = {"DROP", "TRUNCATE", "EXCHANGE", "CONVERT", "DISCARD", "IMPORT"}
_NO_COLUMNS = {
    *("INDEX", "KEY", "CONSTRAINT", "PRIMARY", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "PARTITION"),
    *("PERIOD", "SYSTEM"),
}
_NOISE = {"IF", "NOT", "EXISTS"}
_UNREADABLE = "was changed by an ALTER TABLE that cannot be read for sure"


@cache
def _pattern(sql_mode: int) -> re.Pattern[str]:
    """What cuts up the statements of sessions with a mode."""
    # what is not closed reaches to the end, so that it is read once
    in_text, in_double = (r"[^']|''", r'[^"]|""')
    if not sql_mode & NO_BACKSLASH_ESCAPES:
        in_text, in_double = (r"[^'\\]|''|\\.?", r'[^"\\]|""|\\.?')
    text, name = rf"'(?:{in_text})*+(?:'|\Z)", r"`(?:[^`]|``)*+(?:`|\Z)"
    if sql_mode & ANSI_QUOTES:
        name += r'|"(?:[^"]|"")*+(?:"|\Z)'
    else:
        text += rf'|"(?:{in_double})*+(?:"|\Z)'
    space = r"\s+|\#[^\n]*|--(?=\s|$)[^\n]*|/\*(?!M?!).*?(?:\*/|\Z)|/\*M?!\d*|\*/"
    return re.compile(
        f"(?P<space>{space})|(?P<quoted>{name})|(?P<text>{text})|(?P<word>{_WORD})|(?P<mark>.)", re.DOTALL
    )


@dataclass(frozen=True)
class Rename:
    """A column that gets another name.

    :param optional: it need not be there (``IF EXISTS``).
    """

    old: str
    new: str
    optional: bool = False


@dataclass(frozen=True)
class Alteration:
    """What one ALTER TABLE does to the columns; names mean the columns as they were before it.

    :param renamed: all at once, so that columns may exchange their names.
    :param moved: a column comes to stand elsewhere than at the end.
    """

    renamed: tuple[Rename, ...] = ()
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    moved: bool = False


@dataclass(frozen=True)
class Effect:
    """What a statement does to one table.

    :param kind: ``truncate`` empties it; ``altered`` changes its columns; ``lost`` changes rows, or which rows the name
        stands for, in a way that no row event tells.
    :param table: None is every table of the schema.
    :param detail: what happened, for ``lost``.
    :param change: what happened, for ``altered``.
    """

    kind: Literal["truncate", "altered", "lost"]
    schema: str
    table: str | None
    detail: str = ""
    change: Alteration = Alteration()


@dataclass(frozen=True)
class Token:
    """A piece of a statement.

    :param name: the text without quotes; empty for a string literal.
    :param bare: not quoted, in upper case; empty for what is quoted.
    """

    name: str
    bare: str

    @property
    def names(self) -> bool:
        """Whether it can be a name."""
        return bool(self.name) and (not self.bare or re.fullmatch(_WORD, self.name) is not None)


def tokens(statement: str, sql_mode: int = 0) -> list[Token]:
    """Cut a statement up, without comments; what stands in executable comments stays."""
    found = []
    for match in _pattern(sql_mode & (ANSI_QUOTES | NO_BACKSLASH_ESCAPES)).finditer(statement):
        text = match.group()
        if match.lastgroup == "quoted":
            found.append(Token(text[1:-1].replace(text[0] * 2, text[0]), ""))
        elif match.lastgroup == "text":
            found.append(Token("", ""))
        elif match.lastgroup != "space":
            found.append(Token(text, text.upper()))
    return found


def effects(statement: str, schema: str, sql_mode: int = 0) -> list[Effect]:
    """What a statement does to tables.

    :param schema: the session's default database.
    :param sql_mode: the session's, as the log keeps it.
    """
    found = _without_settings(tokens(statement, sql_mode))
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
        # which servers execute what stands in such a comment is not for us to say
        return list(_altered(found, schema, sure="/*!" not in statement and "/*M!" not in statement))
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


def _altered(found: list[Token], schema: str, sure: bool) -> Iterator[Effect]:
    place = next(i for i, token in enumerate(found) if token.bare == "TABLE")
    name, at = _name(found, place + 1, schema)
    # MariaDB: how long to wait for the table
    at += {"NOWAIT": 1, "WAIT": 2}.get(found[at].bare if at < len(found) else "", 0)
    renamed: list[Rename] = []
    added: list[str] = []
    dropped: list[str] = []
    moved = False
    for part in _parts(found[at:]):
        words = [token.bare for token in part]
        first, second = words[0], (words + [""])[1]
        moved = moved or not {"FIRST", "AFTER"}.isdisjoint(words)
        if not {"RENAME", "CHANGE"}.isdisjoint(words[1:]):
            yield Effect("lost", *name, _UNREADABLE)
        elif first in ("ADD", "DROP") and _is_column(words):
            columns = _columns(part)
            (added if first == "ADD" else dropped).extend(columns)
        elif first == "CHANGE" or (first, second) == ("RENAME", "COLUMN"):
            rename = _rename(part, words)
            if rename is None or (rename.old != rename.new and not sure):
                yield Effect("lost", *name, _UNREADABLE)
            else:
                renamed.append(rename)
        elif reason := _risk(first, second):
            yield Effect("lost", *name, reason)
            if first in ("EXCHANGE", "CONVERT", "RENAME"):
                marks = [words.index(mark) for mark in ("TABLE", "TO", "AS", "=") if mark in words]
                other, _end = _name(part, (marks or [0])[0] + 1, schema)
                yield Effect("lost", *other, "was replaced by another table")
    again = [column for column in added if column.lower() in {c.lower() for c in dropped}]
    if again:
        yield Effect("lost", *name, f"dropped and added the column {again[0]!r} at once")
    yield Effect("altered", *name, change=Alteration(tuple(renamed), tuple(added), tuple(dropped), moved))


def _rename(part: Sequence[Token], words: Sequence[str]) -> Rename | None:
    """What ``RENAME COLUMN`` or ``CHANGE`` does; None if that cannot be told for sure."""
    at = 2 if words[1:2] == ["COLUMN"] else 1
    optional = list(words[at : at + 2]) == ["IF", "EXISTS"]
    at += 2 if optional else 0
    if words[0] == "RENAME":
        whole = len(part) == at + 3 and words[at + 1] == "TO"
        names = [part[at], part[at + 2]] if whole else []
    else:
        # a definition follows; MariaDB takes a name with that of its table before it as well
        names = [*part[at : at + 2]] if len(part) > at + 2 and words[at + 2] != "." else []
    if len(names) < 2 or not all(token.names for token in names):
        return None
    return Rename(names[0].name, names[1].name, optional)


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


def _risk(first: str, second: str) -> str | None:
    """Why a part of ALTER TABLE makes the log's rows and the table's differ; None if it does not."""
    if first == "RENAME":
        return None if second in ("INDEX", "KEY") else "was renamed"
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
