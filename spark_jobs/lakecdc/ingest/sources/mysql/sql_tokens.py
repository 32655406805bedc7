"""Cut the statements of the log up into tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

#: modes of a session, as bits, that change how its statements are cut up
ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 0x4, 0x100000
_WORD = r"[\w$\u0080-\uffff]+"
_NOISE = {"IF", "NOT", "EXISTS"}
TableName = tuple[str, str]


@cache
def _pattern(sql_mode: int) -> re.Pattern[str]:
    """Return what cuts up the statements of sessions with a mode."""
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


def table_name(found: Sequence[Token], at: int, schema: str) -> tuple[TableName, int]:
    """Read the table name at a place; return it and the place behind it.

    :param schema: of a table that is named without one.
    """
    while at < len(found) and found[at].bare in _NOISE:
        at += 1
    if at + 2 < len(found) and found[at + 1].bare == ".":
        return (found[at].name, found[at + 2].name), at + 3
    return (schema, found[at].name if at < len(found) else ""), at + 1


def parts(found: Sequence[Token]) -> Iterator[list[Token]]:
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
