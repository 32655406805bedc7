"""Names of namespaces and tables: one document each, and markers by which they are listed.

A document is never deleted; its state changes by compare and swap on its tag, which is unique because each body has the
id of its write. A marker belongs to one incarnation of a name, so removing the marker of a dropped name never hides one
that was created since.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Literal
from urllib.parse import quote, unquote

from lakecdc.contract.errors import InputError, LakecdcError, UnsupportedError
from lakecdc.object_store import conditional_writes
from lakecdc.object_store.conditional_writes import EARLIER, ID
from lakecdc.object_store.storage import DeniedError, Storage

log = logging.getLogger(__name__)

#: levels of a namespace, or these and the name of a table
Names = tuple[str, ...]
Kind = Literal["namespace", "table"]
#: ``creating``: does not exist yet; ``moving``: is being renamed; ``dropping``: is being dropped, a namespace if it is
#: empty
State = Literal["creating", "live", "moving", "dropping", "dropped"]
#: folder below the warehouse without tables
CATALOG_FOLDER = "_lakecdc"
#: folder of the catalog's documents
CATALOG = f"{CATALOG_FOLDER}/catalog"
_KEPT_IDS, _KEPT_ARRIVALS = 32, 1000
# file systems allow 255 bytes, and a table's folder has a suffix
_LONGEST = 240


@dataclass(frozen=True)
class Document:
    """The state of a name.

    :param incarnation: id of the write that created the namespace or table.
    :param to: its new name, while it is renamed.
    :param properties: of the namespace.
    :param id: of the write of this document; see :func:`following`.
    :param earlier: ids of writes before it, the newest last.
    :param arrivals: ids of the renames that have ended here, the newest last.
    """

    state: State
    incarnation: str
    location: str | None = None
    to: Names = ()
    properties: dict[str, str] = field(default_factory=dict)
    id: str = ""
    earlier: tuple[str, ...] = ()
    counter: int = 0
    arrivals: tuple[str, ...] = ()

    def following(self, before: Document | None, write: str = "") -> Document:
        """Return this document as the successor of another one.

        :param write: its id; a new one if empty.
        """
        earlier = () if before is None else (*before.earlier, before.id)[-_KEPT_IDS:]
        counter = 1 if before is None else before.counter + 1
        arrivals = (self.arrivals or (before.arrivals if before else ()))[-_KEPT_ARRIVALS:]
        write = write or str(uuid.uuid4())
        return replace(self, id=write, earlier=earlier, counter=counter, arrivals=arrivals)

    def encoded(self) -> bytes:
        """Return the document's JSON, without empty members."""
        members = {name: value for name, value in asdict(self).items() if value}
        return json.dumps({ID: members.pop("id"), EARLIER: members.pop("earlier", ()), **members}, indent=1).encode()


@dataclass(frozen=True)
class Entry:
    """A document that was read.

    :param tag: of the object.
    """

    names: Names
    document: Document
    tag: str


class Directory:
    """The documents and markers of all names of one kind."""

    def __init__(self, storage: Storage, warehouse: str, kind: Kind) -> None:
        root = f"{warehouse.rstrip('/')}/{CATALOG}"
        self._storage, self._kind = storage, kind
        self._documents, self._markers = f"{root}/names/{kind}/", f"{root}/live/{kind}/"

    def read(self, names: Names) -> Entry | None:
        """Read the document of a name.

        :raises UnsupportedError: it cannot be parsed.
        """
        stored = self._storage.read(self._location(names))
        if stored is None:
            return None
        try:
            values = dict(json.loads(stored.body))
            several = {name: tuple(values.get(name, ())) for name in ("to", "arrivals")}
            members = {"id": values.pop(ID), "earlier": tuple(values.pop(EARLIER)), **values, **several}
            document = Document(**members)
        except (ValueError, KeyError, TypeError) as error:
            raise UnsupportedError(
                f"The catalog's document {self._location(names)} cannot be read: {error!r}.",
                hint="Restore it from an older version of the object, or write it again: "
                "docs/operations/object-store.md describes it.",
            ) from error
        return Entry(names, document, stored.tag)

    def write(self, names: Names, before: Entry | None, document: Document, write: str = "") -> bool:
        """Create a document, or replace the one that was read.

        :param write: the id of the write; a new one if empty.
        :return: false if another writer was first.
        """
        following = document.following(before.document if before else None, write)
        location, body = self._location(names), following.encoded()
        if before is None:
            return conditional_writes.create(self._storage, location, body, following.id)
        return conditional_writes.replace(self._storage, location, body, following.id, before.tag)

    def mark(self, names: Names, incarnation: str) -> None:
        """Show an incarnation of a name in listings."""
        location = f"{self._markers}{encode(names, self._kind)}/{incarnation}"
        conditional_writes.create(self._storage, location, json.dumps({ID: incarnation}).encode(), incarnation)

    def unmark(self, names: Names, incarnation: str) -> None:
        """Hide an incarnation of a name from listings; if that fails, the next reader of the name does it."""
        self._delete(f"{self._markers}{encode(names, self._kind)}/{incarnation}")

    def unmark_all(self, dropped: Entry) -> None:
        """Remove all markers of a dropped name, including those that failed writers left."""
        listed = [each.location for each in self._storage.list(f"{self._markers}{encode(dropped.names, self._kind)}/")]
        # read after them, so that none belongs to a later incarnation
        again = self.read(dropped.names) if listed else None
        if again is not None and again.tag == dropped.tag:
            for location in listed:
                self._delete(location)

    def _delete(self, marker: str) -> None:
        try:
            self._storage.delete(marker)
        except DeniedError:
            # a login with the right to delete removes it later
            return
        except LakecdcError as error:
            log.warning("Listings still have %s: %s", marker, error)

    def listed(self, namespace: Names | None = None) -> Iterator[Names]:
        """Yield the names with markers, in order.

        :param namespace: of tables.
        """
        prefix = self._markers if namespace is None else f"{self._markers}{encode(namespace, 'namespace')}/"
        paths = {each.location.removeprefix(self._markers).rpartition("/")[0] for each in self._storage.list(prefix)}
        yield from sorted(decode(name) for name in paths)

    def _location(self, names: Names) -> str:
        return f"{self._documents}{encode(names, self._kind)}.json"


def encode(names: Names, kind: Kind) -> str:
    """Return the path of a name: levels of a namespace joined by a dot, then a slash and the table.

    :raises InputError: a part is empty, or too long for a file's name.
    """
    parts = [quote(name, safe="").replace(".", "%2E") for name in names]
    path = "/".join([".".join(parts[:-1]), parts[-1]]) if kind == "table" else ".".join(parts)
    if not parts or not all(parts) or max(map(len, path.split("/"))) > _LONGEST or (kind == "table" and len(parts) < 2):
        raise InputError(
            f"{'.'.join(names)!r} cannot be the name of a {kind}.",
            hint=f"No name may be empty, and once percent-encoded it may have at most {_LONGEST} bytes.",
        )
    return path


def decode(path: str) -> Names:
    """Return the name of a path of :func:`encode`."""
    return tuple(unquote(part) for part in path.replace("/", ".").split("."))
