"""Iceberg's REST interface over an ``ObjectCatalog``, without HTTP: a method, a target and a body in, an answer out.

Table metadata passes through as text. Only the members of a request that the catalog itself uses are checked;
requirements and updates go to its applier unchanged.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote_plus, urlsplit

from pyiceberg import exceptions

from lakecdc.contract.errors import InputError, UnsupportedError
from lakecdc.contract.secrets import mask
from lakecdc.object_store.storage import DeniedError

if TYPE_CHECKING:
    from lakecdc.object_store.catalog import ObjectCatalog
    from lakecdc.object_store.names import Names
    from lakecdc.object_store.storage import Document

_log = logging.getLogger(__name__)
# between the levels of a namespace, in paths and in the parameter "parent"
_SEPARATOR = "\x1f"
_T = TypeVar("_T")
# clients repeat requests after 429 and 503, and take 409 for "nothing was written": an unknown outcome is 500
_ERRORS: tuple[tuple[type[Exception], int, str], ...] = (
    (exceptions.NoSuchTableError, 404, "NoSuchTableException"),
    (exceptions.NoSuchNamespaceError, 404, "NoSuchNamespaceException"),
    (exceptions.TableAlreadyExistsError, 409, "AlreadyExistsException"),
    (exceptions.NamespaceAlreadyExistsError, 409, "AlreadyExistsException"),
    (exceptions.NamespaceNotEmptyError, 409, "NamespaceNotEmptyException"),
    (exceptions.CommitFailedException, 409, "CommitFailedException"),
    (exceptions.ForbiddenError, 403, "ForbiddenException"),
    (exceptions.UnauthorizedError, 401, "NotAuthorizedException"),
    (UnsupportedError, 406, "UnsupportedOperationException"),
    (DeniedError, 403, "ForbiddenException"),
    (InputError, 400, "BadRequestException"),
)
_LONGEST_MESSAGE = 4_000


@dataclass(frozen=True)
class Answer:
    """A status and the text of a JSON document; an empty text sends no body."""

    status: int
    text: str = ""


DONE = Answer(204)


def document(value: Mapping[str, Any]) -> Answer:
    """Answer with a document."""
    return Answer(200, json.dumps(value))


def table(metadata: str, location: str | None) -> Answer:
    """Answer with a table's metadata, as stored.

    :param location: of the metadata; None for a table that a later commit creates.
    """
    return Answer(200, f'{{"metadata-location": {json.dumps(location)}, "metadata": {metadata}}}')


def error(status: int, kind: str, message: str) -> Answer:
    """Answer with an error, without secrets."""
    content = {"message": mask(message, _LONGEST_MESSAGE), "type": kind, "code": status}
    return Answer(status, json.dumps({"error": content}))


def failure(raised: Exception, *, is_write: bool) -> Answer:
    """Answer with the error that a request raised; after an unexpected one the outcome of a write is unknown."""
    for known, status, kind in _ERRORS:
        if isinstance(raised, known):
            return error(status, kind, str(raised))
    kind = "CommitStateUnknownException" if is_write else "InternalServerError"
    return error(500, kind, f"{type(raised).__name__}: {raised}")


@dataclass(frozen=True)
class Request:
    """A request to one route.

    :param parts: the placeholders of the route's path, decoded.
    :param body: an empty object if there is none.
    """

    catalog: ObjectCatalog
    parts: Mapping[str, str]
    query: Mapping[str, str]
    body: Document

    @property
    def namespace(self) -> Names:
        return _levels(self.parts["namespace"].split(_SEPARATOR))

    @property
    def identifier(self) -> Names:
        return (*self.namespace, _text(self.parts["table"], "the table's name"))

    @property
    def new_identifier(self) -> Names:
        """Return the name of the table that the body describes."""
        return (*self.namespace, _text(self.body.get("name"), "'name'"))


def _list_namespaces(request: Request) -> Answer:
    parent = request.query.get("parent")
    children = request.catalog.namespaces(_levels(parent.split(_SEPARATOR)) if parent else ())
    page, following = _page([names[-1] for names in children], request.query)
    start = list(children[0][:-1]) if children else []
    return document({"namespaces": [[*start, name] for name in page], "next-page-token": following})


def _create_namespace(request: Request) -> Answer:
    namespace, properties = _levels(request.body.get("namespace")), _texts(request.body, "properties")
    request.catalog.create_namespace(namespace, properties)
    return document({"namespace": namespace, "properties": properties})


def _load_namespace(request: Request) -> Answer:
    properties = request.catalog.namespace_properties(request.namespace)
    return document({"namespace": request.namespace, "properties": properties})


def _namespace_exists(request: Request) -> Answer:
    request.catalog.namespace_properties(request.namespace)
    return DONE


def _update_namespace(request: Request) -> Answer:
    updates, removals = _texts(request.body, "updates"), _list(request.body.get("removals") or [], str, "'removals'")
    if both := sorted(updates.keys() & set(removals)):
        return error(422, "UnprocessableEntityException", f"Properties are updated and removed: {', '.join(both)}.")
    before = request.catalog.namespace_properties(request.namespace)
    request.catalog.update_namespace(request.namespace, removals, updates)
    removed = [name for name in removals if name in before]
    missing = [name for name in removals if name not in before]
    return document({"updated": list(updates), "removed": removed, "missing": missing})


def _drop_namespace(request: Request) -> Answer:
    request.catalog.drop_namespace(request.namespace)
    return DONE


def _list_tables(request: Request) -> Answer:
    page, following = _page(request.catalog.tables(request.namespace), request.query)
    identifiers = [{"namespace": request.namespace, "name": name} for name in page]
    return document({"identifiers": identifiers, "next-page-token": following})


def _create_table(request: Request) -> Answer:
    identifier, body = request.new_identifier, request.body
    if body.get("stage-create"):
        return table(request.catalog.stage_table(request.namespace, body), None)
    created = request.catalog.create_table(identifier[:-1], body)
    return table(created.text, created.location)


def _register_table(request: Request) -> Answer:
    identifier, body = request.new_identifier, request.body
    if body.get("overwrite"):
        raise UnsupportedError(
            "Registering over an existing table is not supported.",
            table=".".join(identifier),
            hint="Drop the table first, without purging it.",
        )
    location = _text(body.get("metadata-location"), "'metadata-location'")
    registered = request.catalog.register_table(identifier, location)
    return table(registered.text, registered.location)


def _load_table(request: Request) -> Answer:
    version = request.catalog.load(request.identifier)
    return table(version.text, version.location)


def _table_exists(request: Request) -> Answer:
    if not request.catalog.exists(request.identifier):
        raise exceptions.NoSuchTableError(f"The table {'.'.join(request.identifier)} does not exist.")
    return DONE


def _update_table(request: Request) -> Answer:
    requirements, updates = (_list(request.body.get(name), dict, repr(name)) for name in ("requirements", "updates"))
    version = request.catalog.update_table(request.identifier, requirements, updates)
    return table(version.text, version.location)


def _drop_table(request: Request) -> Answer:
    request.catalog.drop_table(request.identifier, request.query.get("purgeRequested", "").lower() == "true")
    return DONE


def _rename_table(request: Request) -> Answer:
    source, destination = (_identifier(request.body.get(name), name) for name in ("source", "destination"))
    request.catalog.rename_table(source, destination)
    return DONE


def _ignore(_: Request) -> Answer:
    return DONE


@dataclass(frozen=True)
class _Route:
    """A route of the specification.

    :param path: as in the specification, without a prefix.
    """

    method: str
    path: str
    answer: Callable[[Request], Answer]
    is_write: bool = False

    def match(self, method: str, path: str) -> Mapping[str, str] | None:
        """Return the parts of a path, or None if this route does not match."""
        pairs = list(zip_longest(self.path.replace("/{prefix}", "").split("/"), path.split("/")))
        if method != self.method or not all(
            part if _is_name(expected) else part == expected for expected, part in pairs
        ):
            return None
        # Java writes a blank as a plus sign
        return {expected.strip("{}"): unquote_plus(part) for expected, part in pairs if _is_name(expected)}


def _is_name(expected: str | None) -> bool:
    return expected is not None and expected.startswith("{")


_NAMESPACES = "/v1/{prefix}/namespaces"
_NAMESPACE = f"{_NAMESPACES}/{{namespace}}"
_TABLES = f"{_NAMESPACE}/tables"
_TABLE = f"{_TABLES}/{{table}}"
_ROUTES = (
    _Route("GET", _NAMESPACES, _list_namespaces),
    _Route("POST", _NAMESPACES, _create_namespace, is_write=True),
    _Route("GET", _NAMESPACE, _load_namespace),
    _Route("HEAD", _NAMESPACE, _namespace_exists),
    _Route("DELETE", _NAMESPACE, _drop_namespace, is_write=True),
    _Route("POST", f"{_NAMESPACE}/properties", _update_namespace, is_write=True),
    _Route("GET", _TABLES, _list_tables),
    _Route("POST", _TABLES, _create_table, is_write=True),
    _Route("GET", _TABLE, _load_table),
    _Route("HEAD", _TABLE, _table_exists),
    _Route("POST", _TABLE, _update_table, is_write=True),
    _Route("DELETE", _TABLE, _drop_table, is_write=True),
    _Route("POST", f"{_NAMESPACE}/register", _register_table, is_write=True),
    _Route("POST", "/v1/{prefix}/tables/rename", _rename_table, is_write=True),
    _Route("POST", f"{_TABLE}/metrics", _ignore),
)


class RestInterface:
    """Iceberg's REST interface of one catalog.

    :param writable: whether it takes anything but reads.
    """

    def __init__(self, catalog: ObjectCatalog, *, writable: bool) -> None:
        self._catalog = catalog if writable else catalog.for_reads()
        self._writable = writable

    def answer(self, method: str, target: str, body: bytes) -> Answer:
        """Answer a request.

        :param target: path and query, as in the request.
        """
        address = urlsplit(target)
        if (method, address.path) == ("GET", "/v1/config"):
            return self._config()
        for route in _ROUTES:
            parts = route.match(method, address.path)
            if parts is not None:
                query = dict(parse_qsl(address.query, keep_blank_values=True))
                return self._answer(route, parts, query, body)
        if method in ("GET", "HEAD"):
            return error(404, "NotFoundException", f"The catalog has no {address.path}.")
        return error(406, "UnsupportedOperationException", f"The catalog does not support {method} {address.path}.")

    def _answer(self, route: _Route, parts: Mapping[str, str], query: Mapping[str, str], body: bytes) -> Answer:
        try:
            if route.is_write and not self._writable:
                raise exceptions.ForbiddenError("The catalog is served for reads only.")
            return route.answer(Request(self._catalog, parts, query, _parsed(body) if route.is_write else {}))
        except Exception as raised:
            answer = failure(raised, is_write=route.is_write)
            if answer.status >= 500:
                _log.warning("%s %s: %s", route.method, route.path, answer.text)
            return answer

    def _config(self) -> Answer:
        endpoints = [f"{route.method} {route.path}" for route in _ROUTES if self._writable or not route.is_write]
        return document({"defaults": {}, "overrides": {}, "endpoints": endpoints})


def _parsed(body: bytes) -> Document:
    try:
        parsed = json.loads(body) if body else {}
    except ValueError as error:
        raise InputError(f"The body of the request is not valid JSON: {error}.") from error
    if not isinstance(parsed, Mapping):
        raise InputError("Expected an object as the body of the request.")
    return parsed


def _page(names: Sequence[str], query: Mapping[str, str]) -> tuple[list[str], str | None]:
    """Return one page of names in order, and the token of the next one: the last name.

    Without a token everything is one page, as specified.
    """
    ordered, after, size = sorted(names), query.get("pageToken"), query.get("pageSize")
    if after is None or size is None:
        return [name for name in ordered if name > (after or "")], None
    if not size.isdecimal() or size.strip("0") == "":
        raise InputError("Expected a positive number as 'pageSize'.")
    rest = [name for name in ordered if name > after]
    page = rest[: int(size)]
    return page, page[-1] if len(rest) > len(page) else None


def _list(value: Any, kind: type[_T], what: str) -> list[_T]:
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        raise InputError(f"Expected a list of {'texts' if kind is str else 'objects'} as {what}.")
    return value


def _levels(value: Any) -> Names:
    levels = tuple(_list(value, str, "the namespace"))
    if not levels or not all(levels):
        raise InputError("Expected a namespace with at least one level and no empty ones.")
    return levels


def _identifier(value: Any, name: str) -> Names:
    if not isinstance(value, Mapping):
        raise InputError(f"Expected an object with 'namespace' and 'name' as {name!r}.")
    return (*_levels(value.get("namespace")), _text(value.get("name"), "'name'"))


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"Expected a text as {what}.")
    return value


def _texts(body: Document, name: str) -> dict[str, str]:
    value = body.get(name) or {}
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
        raise InputError(f"Expected an object of texts as {name!r}.")
    return dict(value)
