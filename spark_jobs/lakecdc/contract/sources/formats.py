"""Formats of messages and files, and their settings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from lakecdc.contract.errors import SpecError
from lakecdc.contract.target import Target

MessageFormat = Literal[
    "debezium-json",
    "debezium-flat-json",
    "debezium-avro",
    "canal-json",
    "maxwell-json",
    "ogg-json",
    "dms-json",
    "json",
]
RowFormat = Literal["csv", "xml", "parquet", "text"]
#: formats whose files hold rows instead of change events
ROW_FORMATS = ("csv", "xml", "parquet", "text")
#: Debezium's default for ``unavailable.value.placeholder``
UNAVAILABLE_VALUE = "__debezium_unavailable_value"
_JAVA_GROUP = re.compile(r"\(\?<([A-Za-z_]\w*)>")


@dataclass(frozen=True)
class CsvSettings:
    """Settings of ``csv`` files; the defaults follow RFC 4180.

    :param header: the first line of each file names its columns.
    :param names: columns of files without a header, in order.
    :param delimiter: one character between fields.
    :param quote: character around fields that contain delimiters; may be empty.
    :param escape: character before a quote in a quoted field.
    :param comment: beginning of lines to skip; empty if there are none.
    :param multiline: quoted fields may contain line breaks; then a task reads each file whole.
    :param null_value: text for null, in addition to an empty field.
    """

    header: bool = True
    names: tuple[str, ...] = ()
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    comment: str = ""
    multiline: bool = False
    null_value: str = ""

    def __post_init__(self) -> None:
        for name, least in (("delimiter", 1), ("quote", 0), ("escape", 0)):
            if not least <= len(getattr(self, name)) <= 1:
                raise SpecError(f"source.csv.{name} is {getattr(self, name)!r}.", hint="It must be one character.")
        if self.header == bool(self.names):
            raise SpecError("source.csv needs either a header or names.", hint='Set "header": false with "names".')


@dataclass(frozen=True)
class XmlSettings:
    """Settings of ``xml`` files.

    :param row_tag: element of a row; its children and attributes are the columns.
    :param attribute_prefix: prefix of the columns of attributes.
    """

    row_tag: str
    attribute_prefix: str = "_"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w:.-]+", self.row_tag):
            raise SpecError(f"source.xml.row_tag is {self.row_tag!r}.", hint="Give an element's name without brackets.")


@dataclass(frozen=True)
class TextSettings:
    """Settings of ``text`` files, such as logs.

    :param pattern: regular expression of a whole line; its named groups are the columns, ``(?P<name>…)`` or
        ``(?<name>…)``.
    :param null_value: text for null, in addition to an empty group.
    """

    pattern: str
    null_value: str = ""

    def __post_init__(self) -> None:
        try:
            names = self.groups()
        except re.error as error:
            raise SpecError(f"The regular expression of source.text.pattern is wrong: {error}.") from error
        if not names:
            raise SpecError("source.text.pattern has no named group.", hint="Name columns so: (?P<status>[0-9]+).")

    def groups(self) -> dict[str, int]:
        return dict(re.compile(_JAVA_GROUP.sub(r"(?P<\1>", self.pattern)).groupindex)

    def unnamed(self) -> str:
        """Return the pattern with unnamed groups, because Java's group names allow no underscore."""
        return re.sub(r"\(\?P?<[A-Za-z_]\w*>", "(", self.pattern)


@dataclass(frozen=True)
class RegistrySettings:
    """Schema registry for ``debezium-avro``.

    :param url: REST address, ``http://`` or ``https://``, without user and password.
    :param path: path of a schema with ``{id}`` for its id; the answer is the schema, or an object with the schema as
        text in ``schema``, as in Confluent's API.
    :param id_bytes: bytes of the id that each message begins with, after a zero byte: 4 as Confluent, or 8 as Apicurio
        Registry 2 by default.
    :param user: login; default: none.
    :param password: a secret reference; with ``user``.
    :param token: a secret reference to a bearer token, instead of a login.
    :param ca_file: PEM file on the driver with certificates to trust; default: the machine's.
    """

    url: str
    path: str = "/schemas/ids/{id}"
    id_bytes: Literal[4, 8] = 4
    user: str | None = None
    password: Any = None
    token: Any = None
    ca_file: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SpecError("source.registry.url is not an HTTP address.", hint="It begins with http:// or https://.")
        if parts.username or parts.password:
            raise SpecError(
                "source.registry.url holds a login.", hint='Give "user" and "password": {"env": "NAME"} beside it.'
            )
        if "{id}" not in self.path:
            raise SpecError(f"source.registry.path is {self.path!r}.", hint='It needs "{id}" where the id goes.')
        if self.token is not None and self.user is not None:
            raise SpecError("source.registry has a token and a user.", hint="Remove one of them.")
        if (self.user is None) != (self.password is None):
            raise SpecError("source.registry needs user and password together.")


def refuse_keyless(targets: Iterable[Target], what: str, format: str) -> None:
    """Raise a :class:`SpecError` for a target without the key that it needs, as messages or files have none."""
    for target in targets:
        if target.keyed and not target.key:
            raise SpecError(
                f"It has no key, and {what} of format {format!r} do not contain one.",
                table=target.table,
                hint='Add "key": ["column", …] to its target.',
            )


#: formats whose messages carry the table's key as their own
KEY_OF_MESSAGE = ("debezium-json", "debezium-flat-json", "debezium-avro")
#: formats whose messages may name the columns of the table's key
KEY_IN_MESSAGE = ("canal-json", "maxwell-json", "ogg-json")
