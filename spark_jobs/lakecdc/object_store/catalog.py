"""Answer the requests of the endpoint and of pyiceberg with tables in an object store."""

from __future__ import annotations

import gzip
import json
import random
import re
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from lakecdc.contract.errors import InputError, UnsupportedError
from lakecdc.metadata.locations import split
from lakecdc.metadata.names import moment_tag, refs_of_moment
from lakecdc.object_store.conditional_writes import ID
from lakecdc.object_store.leftovers import Leftovers
from lakecdc.object_store.moments import Moments, as_of, refs_of
from lakecdc.object_store.names import CATALOG_FOLDER, Names, encode
from lakecdc.object_store.namespaces import Namespaces
from lakecdc.object_store.storage import Applier, DeniedError, Document, ReadOnly, Storage
from lakecdc.object_store.tables import Tables
from lakecdc.object_store.versions import DEADLINE, HINT, HINT_BEHIND, Version, Versions, number_of

_LONGEST_PAUSE = 1.0
_GZIP = b"\x1f\x8b"
# makes clients such as pyiceberg delete old versions, whose numbers must not be reused
_DELETING = "write.metadata.delete-after-commit.enabled"
#: an update after which files may be deleted that readers of an older version still need
_REMOVALS = {"remove-snapshots"}


@dataclass(frozen=True)
class Past:
    """A table at a moment.

    :param snapshot: of the table at that moment.
    """

    identifier: Names
    moment: str
    snapshot: int


class ObjectCatalog:
    """The catalog of one warehouse.

    :param readable_paths: place a table in a folder of exactly its name; the folder of a dropped one is not reused.
    """

    def __init__(self, storage: Storage, warehouse: str, applier: Applier, *, readable_paths: bool = False) -> None:
        self._storage, self._warehouse = storage, warehouse.rstrip("/")
        self._applier, self._readable_paths = applier, readable_paths
        self._namespaces, self._tables = Namespaces(storage, warehouse), Tables(storage, warehouse)
        self._moments, self.leftovers = Moments(storage, warehouse), Leftovers(storage, warehouse)
        self.namespaces, self.create_namespace = self._namespaces.children, self._namespaces.create
        self.update_namespace, self.drop_namespace = self._namespaces.update, self._namespaces.drop
        self.rename_table, self.write_moment = self._tables.rename, self._moments.write

    def for_reads(self, refusal: DeniedError | None = None) -> ObjectCatalog:
        """Return the same catalog without any writes, even those that would complete changes of failed writers."""
        storage = ReadOnly(self._storage, refusal or DeniedError(f"{self._warehouse} is open for reads only."))
        return ObjectCatalog(storage, self._warehouse, self._applier, readable_paths=self._readable_paths)

    def namespace_properties(self, namespace: Names) -> dict[str, str]:
        """Return the properties of a namespace.

        :raises pyiceberg.exceptions.NoSuchNamespaceError: it does not exist.
        """
        return dict(self._namespaces.look_up(namespace).document.properties)

    def tables(self, namespace: Names) -> list[str]:
        """Return the names of the tables in a namespace.

        :raises pyiceberg.exceptions.NoSuchNamespaceError: it does not exist.
        """
        self._namespaces.look_up(namespace)
        return self._tables.listed(namespace)

    def load(self, identifier: Names) -> Version:
        """Return a table's newest version; of ``orders@moment`` with the snapshot of that moment as its newest.

        :raises pyiceberg.exceptions.NoSuchTableError: it does not exist.
        """
        past = self._past(identifier)
        version = self._tables.load(past.identifier if past else identifier)
        text = as_of(version.text, past.moment, past.snapshot) if past else version.text
        if text is None:
            raise _no_moment(identifier)
        return replace(version, text=text)

    def _past(self, identifier: Names) -> Past | None:
        """Return the table and the moment of a name such as ``orders@moment``; None if it is a table's own name."""
        table, _, moment = identifier[-1].rpartition("@")
        snapshots = self._moments.read(moment) if table and moment else None
        if snapshots is None:
            return None
        past = (*identifier[:-1], table)
        if ".".join(past) not in snapshots:
            raise _no_moment(identifier)
        return Past(past, moment, snapshots[".".join(past)])

    def tidy_moment(self, moment: str) -> None:
        """Remove tables from a moment that no longer exist or whose tags were dropped."""

        def is_kept(table: str, snapshot: int) -> bool:
            from pyiceberg.exceptions import NoSuchTableError

            try:
                return as_of(self._tables.load(tuple(table.split("."))).text, moment, snapshot) is not None
            except NoSuchTableError:
                return False

        self._moments.keep(moment, is_kept)

    def exists(self, identifier: Names) -> bool:
        """Check whether a table exists."""
        from pyiceberg.exceptions import NoSuchTableError

        with suppress(NoSuchTableError):
            self.load(identifier)
            return True
        return False

    def versions(self, identifier: Names) -> Versions:
        """Return the versions of a table, to trim or to wipe.

        :raises pyiceberg.exceptions.NoSuchTableError: it does not exist.
        """
        return self._tables.versions(self._tables.location(identifier))

    def new_location(self, identifier: Names) -> str:
        """Return a location for a new table."""
        path = encode(identifier, "table")
        return f"{self._warehouse}/{path}" + ("" if self._readable_paths else f"-{uuid.uuid4().hex[:8]}")

    def create_table(self, namespace: Names, request: Document) -> Version:
        """Create a table.

        :param request: a ``CreateTableRequest``.
        :raises pyiceberg.exceptions.TableAlreadyExistsError: the name or the location is used.
        :raises pyiceberg.exceptions.NoSuchNamespaceError: there is no such namespace.
        :raises pyiceberg.exceptions.CommitFailedException: another writer creates it.
        """
        identifier = (*namespace, str(request["name"]))
        location = str(request.get("location") or self.new_location(identifier)).rstrip("/")
        request = _without_deletion(request, "properties")
        return self._tables.create(identifier, _allowed(location), self._applier.create(request, location))

    def stage_table(self, namespace: Names, request: Document) -> str:
        """Return the first metadata of a table that a later commit creates (``assert-create``).

        :param request: a ``CreateTableRequest``.
        :raises pyiceberg.exceptions.TableAlreadyExistsError: the name is used.
        :raises pyiceberg.exceptions.NoSuchNamespaceError: there is no such namespace.
        """
        from pyiceberg.exceptions import TableAlreadyExistsError

        identifier = (*namespace, str(request["name"]))
        self._namespaces.require(namespace)
        if self.exists(identifier):
            raise TableAlreadyExistsError(f"The table {'.'.join(identifier)} exists.")
        return self._applier.create(request, str(request.get("location") or self.new_location(identifier)))

    def update_table(self, identifier: Names, requirements: Sequence[Document], updates: Sequence[Document]) -> Version:
        """Commit updates of a table; retry while other writers are faster and the requirements still hold.

        :raises pyiceberg.exceptions.CommitFailedException: a requirement does not hold.
        :raises pyiceberg.exceptions.CommitStateUnknownException: it is unknown whether it was committed.
        :raises pyiceberg.exceptions.NoSuchTableError: it does not exist.
        """
        from pyiceberg.exceptions import CommitStateUnknownException

        updates = [_without_deletion(each, "updates") for each in updates]
        for each in updates:
            if each.get("action") == "set-location":
                _allowed(str(each.get("location")))
        if any(each.get("type") == "assert-create" for each in requirements):
            return self._create_staged(identifier, requirements, updates)
        committed = self._repeat(identifier, lambda head: self._applied(head, requirements, updates))
        removes = any(each.get("action") in _REMOVALS for each in updates)
        # before files of removed snapshots are deleted, as readers by path would miss them
        if removes and not self._versions_of(committed).move_hint(committed.number):
            raise CommitStateUnknownException(f"{'.'.join(identifier)}: snapshots were removed, but {HINT_BEHIND}.")
        return committed

    def _applied(self, head: Version, requirements: Sequence[Document], updates: Sequence[Document]) -> str:
        return self._applier.apply(head.text, head.location, requirements, updates)

    def _create_staged(
        self, identifier: Names, requirements: Sequence[Document], updates: Sequence[Document]
    ) -> Version:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        text = self._applier.apply("", "", requirements, updates)
        try:
            return self._tables.create(identifier, _allowed(json.loads(text)["location"]), text)
        except TableAlreadyExistsError as error:
            raise CommitFailedException(str(error)) from error

    def _repeat(self, identifier: Names, change: Callable[[Version], str]) -> Version:
        from pyiceberg.exceptions import CommitFailedException

        begun, pause = time.monotonic(), 0.02
        while True:
            head = self._tables.load(identifier)
            if (text := change(head)) == head.text:
                return head
            committed = self._versions_of(head).commit(head.number, text, head.read_at)
            if committed is not None:
                return committed
            if time.monotonic() - begun > DEADLINE:
                raise CommitFailedException(f"{'.'.join(identifier)}: other writers were always faster.")
            time.sleep(random.uniform(0, pause))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _versions_of(self, version: Version) -> Versions:
        return self._tables.versions(version.location.rpartition("/metadata/")[0])

    def drop_table(self, identifier: Names, purge: bool = False) -> None:
        """Drop a table; of ``orders@moment`` the tag and the branch that keep its snapshot.

        :param purge: delete its files too; its versions become stubs. Files of a moment are deleted by expiry.
        :raises pyiceberg.exceptions.NoSuchTableError: it does not exist.
        :raises UnsupportedError: a purge was requested, but the folder may have files of other tables.
        """
        if past := self._past(identifier):
            self._drop_moment(past)
            return
        if purge:
            self._refuse_shared(identifier, self._tables.location(identifier))
        location = self._tables.drop(identifier)
        if purge:
            self.leftovers.record(location)
            self._tables.versions(location).wipe()
            for each in self._storage.list(f"{location}/"):
                if number_of(each.location) is None and not each.location.endswith(f"/metadata/{HINT}"):
                    self._storage.delete(each.location)

    def _drop_moment(self, past: Past) -> None:
        from pyiceberg.exceptions import NoSuchTableError

        def dropped(head: Version) -> str:
            refs = refs_of(head.text)
            if refs.get(moment_tag(past.moment)) != past.snapshot:
                return head.text
            updates = [
                {"action": "remove-snapshot-ref", "ref-name": name} for name in refs_of_moment(past.moment, refs)
            ]
            return self._applied(head, [], updates)

        with suppress(NoSuchTableError):
            self._repeat(past.identifier, dropped)
        # if killed before this, the document names a table without a tag, which counts as none
        self.tidy_moment(past.moment)

    def _refuse_shared(self, identifier: Names, location: str) -> None:
        """Refuse to purge a folder that the catalog did not choose, or that has further tables."""
        below = location.removeprefix(f"{self._warehouse}/")
        readable, suffixed = re.fullmatch(r"[^/]+/[^/]+", below), re.fullmatch(r"[^/]+/[^/]+-[0-9a-f]{8}", below)
        chosen = readable if self._readable_paths else suffixed
        inside = (each.location for each in self._storage.list(f"{location}/") if number_of(each.location) is not None)
        tables = {each.rpartition("/metadata/")[0] for each in inside}
        if below == location or chosen is None or tables != {location}:
            raise UnsupportedError(
                f"Files in {location} may be of other tables: the catalog did not choose this location for one table.",
                table=".".join(identifier),
                hint="Drop the table without PURGE, and delete its folder.",
            )

    def register_table(self, identifier: Names, metadata_location: str) -> Version:
        """Register an existing table under a name.

        :param metadata_location: its newest metadata file; that of another catalog becomes the first version here.
        :raises InputError: the location has no metadata, or newer versions.
        :raises pyiceberg.exceptions.TableAlreadyExistsError: the name is used.
        """
        metadata = self._read_metadata(metadata_location)
        location = _allowed(str(metadata["location"]).rstrip("/"))
        self._tables.refuse_named(location)
        versions = self._tables.versions(location)
        head = versions.head()
        if isinstance(head, Version):
            if head.location != metadata_location:
                raise InputError(
                    f"{location} already has versions, the newest in {head.location}.",
                    table=".".join(identifier),
                    hint="Register that file.",
                )
            self._tables.name(identifier, location)
            return head
        version = versions.commit(head.number if head else 0, json.dumps(metadata))
        if version is None:
            raise InputError(f"Another writer has created a table in {location}.", table=".".join(identifier))
        self._tables.name(identifier, location)
        return version

    def _read_metadata(self, location: str) -> dict[str, Any]:
        """Read a table's metadata, without a write's id and the property that makes clients delete old versions."""
        stored = self._storage.read(location)
        if stored is None:
            raise InputError(f"There is no metadata at {location}.")
        try:
            body = gzip.decompress(stored.body) if stored.body.startswith(_GZIP) else stored.body
            metadata = json.loads(body)
            valid = isinstance(metadata["location"], str)
        except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
            raise InputError(f"{location} is not table metadata: {error!r}.") from error
        if not valid:
            raise InputError(f"{location} is not table metadata: it has no location.")
        metadata.pop(ID, None)
        metadata["properties"] = {k: v for k, v in (metadata.get("properties") or {}).items() if k != _DELETING}
        return dict(metadata)


def _no_moment(identifier: Names) -> Exception:
    from pyiceberg.exceptions import NoSuchTableError

    return NoSuchTableError(f"There is no table {'.'.join(identifier)}: the moment has ended or lacks it.")


def _without_deletion(request: Document, name: str) -> Document:
    """Remove the property that makes clients delete old versions.

    :param name: the request's member with the properties.
    """
    properties = request.get(name)
    if not properties or _DELETING not in properties:
        return request
    return {**request, name: {key: value for key, value in properties.items() if key != _DELETING}}


def _allowed(location: str) -> str:
    """Return the location of a table.

    :raises InputError: it is in the folder of the catalog's documents, or is not spelled as in listings.
    """
    steps = split(location)[2].removeprefix("/").split("/")
    if CATALOG_FOLDER in steps:
        raise InputError(
            f"A table cannot be in {location}: that folder is for the catalog's documents.",
            hint="Use another name of the namespace, or another location.",
        )
    if {"", ".", ".."} & set(steps):
        raise InputError(
            f"A table cannot be in {location!r}: a step of the path is empty, or is a dot.",
            hint="Give the location without //, /./ and /../, and without a slash at its end.",
        )
    return location
