"""Secrets travel as references that only the job resolves; a literal one is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from lakecdc.contract.errors import SpecError

#: the one list of what is secret, as parts of names. Python, Java and any case read it alike; it captures nothing
_SECRET_WORDS = "|".join(
    (
        r"passw(?:or)?d|passphrase|\bpwd|secret|token|credential|authorization|cookie|signature|\bsig\b|jaas",
        r"(?:access|account|api|private|shared|scram_client|scram_server|keystore|sse)[-_.]?key(?![-_.]?id)",
        r"(?:en|de)cryption[-_.]?key(?![-_.]?id)|sse[-_.]md5|key[-_.]pem|oauthbearer[-_.]config|connection[-_.]?string",
    )
)
# SQLAlchemy takes all up to the @ for the password, slashes too; before other services' paths stands a port
_URI_LOGIN = r"(?!(?:https?|hdfs|thrift)://[^/@:\s]*:\d{1,5}[/?])\b[a-z][\w+.-]*://[^/@:\s\[]*:"
_URI_PASSWORD_END = r"[^\s\"]{1,2000}@"
#: the same for Spark, which looks for it in names and values of its settings
REDACTION_PATTERN = f"(?i){_SECRET_WORDS}|{_URI_LOGIN}{_URI_PASSWORD_END}"

_SECRET_NAME = re.compile(_SECRET_WORDS, re.IGNORECASE)
# bounded, as the above, so that the time a text takes grows with its length alone
_NAME = rf"[\w.-]{{0,100}}(?:{_SECRET_WORDS})[\w.-]{{0,100}}"
_QUOTED = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
_HIDDEN = (
    (rf"({_URI_LOGIN}){_URI_PASSWORD_END}", r"\1***@"),
    # name=value of connection strings and URLs, but no folder such as /token=5/
    (rf"(?<![/\w.-])({_NAME})\s*=\s*(?:{_QUOTED}|\S+)", r"\1=***"),
    # "name": value of JSON and Python
    (rf"""(["']{_NAME}["']\s*:)\s*(?:{_QUOTED}|[^\s,}}\]]+)""", r"\1 ***"),
    (r"\b((?:proxy-)?authorization|(?:set-)?cookie|x-api-key)\s*:\s*[^\r\n\"']+", r"\1: ***"),
)
_MASKS = tuple((re.compile(pattern, re.IGNORECASE), shown) for pattern, shown in _HIDDEN)


def is_reference(value: Any) -> bool:
    """Tell whether ``value`` is ``{"env": NAME}`` or ``{"file": PATH}``."""
    return isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in ("env", "file")


def is_secret(name: str, value: Any) -> bool:
    """Tell whether a setting must not be written out: by its name, or because its text has a password in it."""
    return bool(_SECRET_NAME.search(name)) or (isinstance(value, str) and mask(value) != value)


def refuse_literals(document: Any, where: str, *, names_are_data: Collection[str] = ()) -> None:
    """Walk the settings of a catalog or a source and refuse secrets written out.

    :param document: any JSON value.
    :param where: its path in the spec, for the message.
    :param names_are_data: keys of ``document`` under which the names of tables and columns stand, not of settings.
    :raises SpecError: naming the key, never the value.
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
    """Replace every reference in ``value`` by what it refers to.

    :param value: any JSON value; objects and lists are walked.
    :param where: its path in the spec, for the message.
    :raises SpecError: if the environment variable or the file is not there.
    """
    if is_reference(value):
        return _read(value, where)
    if isinstance(value, Mapping):
        return {key: resolve(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(resolve(item, f"{where}[{i}]") for i, item in enumerate(value))
    return value


def mask(text: str) -> str:
    """Hide what is secret in a text, for messages and logs: passwords in URIs, ``name=value`` and headers."""
    for pattern, shown in _MASKS:
        text = pattern.sub(shown, text)
    return text


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
        hint='Give a reference instead, {"env": "NAME"} or {"file": "/path"}, which only the job resolves.',
    )
