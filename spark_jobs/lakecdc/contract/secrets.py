"""Secrets travel as references that only the job resolves; a literal one is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lakecdc.contract.errors import SpecError

SECRET_NAME = re.compile(
    r"(password|passwd|secret|token|credential|private[-_.]?key|api[-_.]?key|access[-_.]?key$)", re.IGNORECASE
)
_URI_PASSWORD = re.compile(r"(?<=://)([^/@:\s]*):([^/@\s]+)@")
_DSN_PASSWORD = re.compile(r"\bpassword\s*=\s*('[^']*'|\S+)", re.IGNORECASE)


def is_reference(value: Any) -> bool:
    """Tell whether ``value`` is ``{"env": NAME}`` or ``{"file": PATH}``."""
    return isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in ("env", "file")


def refuse_literals(document: Any, where: str) -> None:
    """Walk a spec and refuse secrets written out, under a secret-named key or inside a URI or DSN.

    :param document: any JSON value.
    :param where: its path in the spec, for the message.
    :raises SpecError: naming the key, never the value.
    """
    if isinstance(document, Mapping) and not is_reference(document):
        for key, value in document.items():
            if SECRET_NAME.search(str(key)) and isinstance(value, str | int | float) and not isinstance(value, bool):
                raise _literal(f"{where}.{key}")
            refuse_literals(value, f"{where}.{key}")
    elif isinstance(document, list | tuple):
        for index, value in enumerate(document):
            refuse_literals(value, f"{where}[{index}]")
    elif isinstance(document, str) and (_URI_PASSWORD.search(document) or _DSN_PASSWORD.search(document)):
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
    """Hide passwords inside URIs and DSNs, for messages and logs."""
    return _DSN_PASSWORD.sub("password=***", _URI_PASSWORD.sub(r"\1:***@", text))


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
