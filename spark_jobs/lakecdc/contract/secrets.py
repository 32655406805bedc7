"""Secret references, which only the job resolves, refusal of literal secrets, and masking of texts."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from lakecdc.contract.errors import SpecError

#: the one list of parts of names that mark secrets, as a pattern for Python and Java, for any case, without groups
_SECRET_WORDS = "|".join(
    (
        r"passw(?:or)?d|passphrase|\bpwd|secret|token|credential|authorization|cookie|signature|\bsig\b|jaas",
        r"(?:access|account|api|private|shared|scram_client|scram_server|keystore|sse)[-_.]?key(?![-_.]?id)",
        r"(?:en|de)cryption[-_.]?key(?![-_.]?id)|sse[-_.]md5|key[-_.]pem|oauthbearer[-_.]config|connection[-_.]?string",
    )
)
# SQLAlchemy reads all up to the @ as the password, even slashes; these services have a port before a path
_URI_LOGIN = r"(?<!hdfs)(?<!thrift)://[^/@:\s\[]*:"
#: the same for Spark, which looks for it in names and values of its settings
REDACTION_PATTERN = rf"(?i){_SECRET_WORDS}|{_URI_LOGIN}[^\s\"@]{{1,2000}}@"

# text quoted by Spark and Arrow, from the first quote to the last, because values may contain quotes; numbers and dates
_ROW_VALUE = re.compile(r"'.*'|(?<![\w#])-?\d[\w.:+-]*")
_SECRET_NAME = re.compile(_SECRET_WORDS, re.IGNORECASE)
_SECRET_END = re.compile(rf"(?:{_SECRET_WORDS})\Z", re.IGNORECASE)
# these patterns take linear time: no repetition begins inside a similar one
_WORD = re.compile(r"[^\s\"]+")
_LOGIN = re.compile(rf"{_URI_LOGIN}|jdbc:oracle:\w{{1,20}}:[^\s/@\"]{{1,128}}/", re.IGNORECASE)
# not words such as "Bearer token", but text that is long or has digits, signs or capitals inside
_BEARER = re.compile(r"\b([Bb]earer|BEARER|[Bb]asic|BASIC)\s+(?=[A-Za-z]*(?:[a-z][A-Z]|[\d_+/=~-])|\S{20})[^\s\"',;]+")
_NAMED = re.compile(r"""(?<![\w.-])(?P<name>[\w.-]++)(?P<sign>\\*+["']?\s*+[=:][=>]?\s*+|[ \t]++)""")
_QUOTED = r"""\\*+'(?:\\.|[^'\\])*+(?:'|\Z)|\\*+"(?:\\.|[^"\\])*+(?:"|\Z)"""
_VALUE = re.compile(rf"{_QUOTED}|\S+", re.DOTALL)
_JSON_VALUE = re.compile(rf"{_QUOTED}|[^\s,}}\]]+", re.DOTALL)
_HEADER = re.compile(r"(?:proxy-)?authorization|(?:set-)?cookie|x-api-key", re.IGNORECASE)
_HEADER_VALUE = re.compile(r"[^\r\n\"']+")
# name: value of YAML; no fields of a struct
_YAML_VALUE = re.compile(
    r"(?!(?:string|boolean|(?:big|small|tiny)?int|long|float|double|decimal|binary|date|timestamp|timestamp_ntz|struct|"
    rf"array|map|variant)(?:[\s,<>()]|\Z))(?:{_VALUE.pattern})",
    re.IGNORECASE | re.DOTALL,
)
# settings of Hadoop and Spark, in whose files a blank comes before the value; tables have fewer dots
_SETTING = re.compile(r"(?:[\w-]+\.){2}|(?:fs|dfs|spark|hadoop|hive|javax|s3|gcs|adls|ssl|sasl|jdbc|rest|header)\.")
_SETTING_VALUE = re.compile(
    rf"(?!(?:is|are|was|has|must|may|can|to|in|of|for|and|or|not|with|as|on)(?:\s|\Z))(?:{_VALUE.pattern})", re.DOTALL
)


def is_reference(value: Any) -> bool:
    """Check whether a value is ``{"env": NAME}`` or ``{"file": PATH}``."""
    return isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in ("env", "file")


def is_secret(name: str, value: Any) -> bool:
    """Check whether a setting must not be shown: by its name, or because its text contains a password."""
    return bool(_SECRET_NAME.search(name)) or (isinstance(value, str) and mask(value) != value)


def refuse_literals(document: Any, where: str, *, names_are_data: Collection[str] = ()) -> None:
    """Raise a :class:`SpecError` that names the key of a literal secret in the settings of a catalog or source.

    :param where: path of the document in the spec.
    :param names_are_data: keys whose objects have names of tables and columns as keys, not of settings.
    """
    if isinstance(document, Mapping) and not is_reference(document):
        for key, value in document.items():
            if key in names_are_data:
                continue
            if _is_written_out(str(key), value):
                raise _literal(f"{where}.{key}")
            refuse_literals(value, f"{where}.{key}")
    elif isinstance(document, list | tuple):
        for index, value in enumerate(document):
            refuse_literals(value, f"{where}[{index}]")
    elif _is_written_out("", document):
        raise _literal(where)


def resolve(value: Any, where: str) -> Any:
    """Replace all secret references in a JSON value.

    :param where: its path in the spec.
    :raises SpecError: an environment variable or a file does not exist.
    """
    if is_reference(value):
        return _read(value, where)
    if isinstance(value, Mapping):
        return {key: resolve(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(resolve(item, f"{where}[{i}]") for i, item in enumerate(value))
    return value


def mask(text: str, most: int | None = None) -> str:
    """Hide secrets in a text for messages and logs: logins in URIs, named values, headers and bearer tokens.

    :param most: maximum number of characters; the rest is cut off unread.
    """
    if most is not None and len(text) > most:
        # the @ replaces one behind the cut, which shows that a password is before it
        return mask(f"{text[:most]}@").removesuffix("@") + " …"
    if "@" in text:
        text = _WORD.sub(_hide_login, text)
    return _hide_named(_BEARER.sub(r"\1 ***", text))


def without_values(message: str) -> str:
    """Remove the values of rows from a library's message."""
    return _ROW_VALUE.sub("\u2026", message.partition("\n")[0])


def _hide_login(word: re.Match[str]) -> str:
    text = word[0]
    login, host = _LOGIN.search(text), text.rfind("@")
    return text if login is None or login.end() >= host else f"{text[: login.end()]}***{text[host:]}"


def _hide_named(text: str) -> str:
    shown, end = [], 0
    for named in _NAMED.finditer(text):
        pattern = _value_pattern(named) if named.start() >= end else None
        value = pattern.match(text, named.end()) if pattern else None
        if value:
            sign = "=" if "=" in named["sign"] else f"{named['sign'].rstrip()} "
            shown.append(f"{text[end : named.end('name')]}{sign}***")
            end = value.end()
    return "".join((*shown, text[end:]))


def _value_pattern(named: re.Match[str]) -> re.Pattern[str] | None:
    """Return the pattern of the value of a secret name; None if it has none."""
    name, sign = named["name"], named["sign"]
    if not _SECRET_NAME.search(name):
        return None
    if "=" in sign:
        # not a folder such as /token=5/
        return None if named.string.endswith("/", 0, named.start()) else _VALUE
    if ":" not in sign:
        return _SETTING_VALUE if _SETTING.match(name) else None
    if '"' in sign or "'" in sign:
        return _JSON_VALUE
    if _HEADER.fullmatch(name):
        return _HEADER_VALUE
    has_value = sign[-1].isspace() and (_SECRET_END.search(name) or _SETTING.match(name))
    return _YAML_VALUE if has_value else None


def _is_written_out(name: str, value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_is_written_out(name, item) for item in value)
    return isinstance(value, str | int | float) and not isinstance(value, bool) and is_secret(name, value)


def _read(reference: Mapping[str, str], where: str) -> str:
    kind, name = next(iter(reference.items()))
    if kind == "env":
        if name not in os.environ:
            raise SpecError(f"{where} refers to the environment variable {name}, which is not set in the job.")
        return os.environ[name]
    try:
        return Path(name).read_text(encoding="utf-8").rstrip("\n")
    except OSError as error:
        raise SpecError(f"{where} refers to the file {name}, which cannot be read ({error.strerror}).") from error


def _literal(where: str) -> SpecError:
    return SpecError(
        f"{where} holds a secret as a literal.",
        hint='Use a reference instead, {"env": "NAME"} or {"file": "/path"}, which only the job resolves.',
    )
