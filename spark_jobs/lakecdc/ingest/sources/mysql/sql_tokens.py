"""Split the log's statements into tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

#: bits of session modes that change how statements are split
ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 0x4, 0x100000
_WORD = r"[\w$\u0080-\uffff]+"
_NOISE = {"IF", "NOT", "EXISTS"}
TableName = tuple[str, str]


@cache
def _pattern(sql_mode: int) -> re.Pattern[str]:
    """Return the token pattern for a session mode."""
    # an unclosed literal extends to the end, so it is scanned once
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
    :param bare: unquoted text in upper case; empty for quoted text.
    """

    name: str
    bare: str

    @property
    def names(self) -> bool:
        """Whether it can be a name."""
        return bool(self.name) and (not self.bare or re.fullmatch(_WORD, self.name) is not None)


def tokens(statement: str, sql_mode: int = 0) -> list[Token]:
    """Split a statement into tokens, without comments; keep the content of executable comments."""
    pieces = []
    for match in _pattern(sql_mode & (ANSI_QUOTES | NO_BACKSLASH_ESCAPES)).finditer(statement):
        text = match.group()
        if match.lastgroup == "quoted":
            pieces.append(Token(text[1:-1].replace(text[0] * 2, text[0]), ""))
        elif match.lastgroup == "text":
            pieces.append(Token("", ""))
        elif match.lastgroup != "space":
            pieces.append(Token(text, text.upper()))
    return pieces


def table_name(statement: Sequence[Token], at: int, schema: str) -> tuple[TableName, int]:
    """Read the table name at a place; return it and the next place.

    :param schema: default schema.
    """
    while at < len(statement) and statement[at].bare in _NOISE:
        at += 1
    if at + 2 < len(statement) and statement[at + 1].bare == ".":
        return (statement[at].name, statement[at + 2].name), at + 3
    return (schema, statement[at].name if at < len(statement) else ""), at + 1


def parts(statement: Sequence[Token]) -> Iterator[list[Token]]:
    """Split at commas outside parentheses."""
    depth = 0
    part: list[Token] = []
    for token in statement:
        depth += {"(": 1, ")": -1}.get(token.bare, 0)
        if token.bare == "," and not depth:
            if part:
                yield part
            part = []
        else:
            part.append(token)
    if part:
        yield part
