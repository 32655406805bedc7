"""Copy tables to another catalog: it gets a pointer to the same metadata, and no data moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.lake.tables import load_table
from lakecdc.contract.errors import ConflictError, InputError, UnsupportedError, VerificationError
from lakecdc.contract.runtime import OBJECT_STORE, catalog_type
from lakecdc.metadata.locations import in_s3
from lakecdc.metadata.policy import is_pattern, matching

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

Outcome = dict[str, Any]
COPY, COPIED, THERE = "copy", "copied", "there"
# property by which a catalog in a database marks an existing namespace
_MARK = "exists"
# properties that a catalog in an object store removes, as it keeps old metadata itself
_OWN_PROPERTIES = {"write.metadata.delete-after-commit.enabled"}


class TableCopier:
    """Copies tables between two open catalogs, under the same names."""

    def __init__(self, source: Catalog, target: Catalog) -> None:
        self._source, self._target = source, target
        self._planned: dict[str, Table] = {}

    def plan(self, tables: Sequence[str]) -> dict[str, Outcome]:
        """Compare the tables of both catalogs without writing; return the plan or the error of each."""
        return {name: _outcome(self._plan, name) for name in tables}

    def _plan(self, name: str) -> Outcome:
        table = load_table(self._source, name)
        if table is None:
            raise InputError("The table does not exist.", hint="Check the spelling.")
        self._require_same_storage(table)
        there = load_table(self._target, name)
        if there is not None:
            _require_same(table, there)
            return _done(THERE, table)
        self._planned[name] = table
        return _done(COPY, table)

    def _require_same_storage(self, table: Table) -> None:
        """Check that the other catalog reads the same metadata: its bucket of this name may be another one."""
        from pyiceberg.io import load_file_io
        from pyiceberg.serializers import FromInputFile

        location, properties = table.metadata_location, self._target.properties
        if catalog_type(properties) == OBJECT_STORE and in_s3(location) != in_s3(properties["warehouse"]):
            raise _unreadable(location, "its warehouse is in another kind of storage")
        try:
            read = FromInputFile.table_metadata(load_file_io(properties, location).new_input(location))
        except Exception as error:
            # each storage has different errors
            raise _unreadable(location, f"{type(error).__name__}: {error}") from error
        if read.table_uuid != table.metadata.table_uuid or read.current_snapshot_id != _current(table):
            raise _unreadable(location, "it finds another table there")

    def write(self) -> dict[str, Outcome]:
        """Execute the plans; return the results."""
        return {name: _outcome(self._write, name) for name in self._planned}

    def _write(self, name: str) -> Outcome:
        table = self._planned[name]
        identifier = table.name()
        for level in range(1, len(identifier)):
            self._target.create_namespace_if_not_exists(identifier[:level], self._properties(identifier[:level]))
        self._target.register_table(identifier, table.metadata_location)
        copy, original = load_table(self._target, name), load_table(self._source, name)
        if copy is None or copy.metadata.table_uuid != table.metadata.table_uuid or _current(copy) != _current(table):
            raise VerificationError(
                "The other catalog took the table, but shows another one.",
                hint="Write to neither, and compare them.",
            )
        if original is None or original.metadata_location != table.metadata_location:
            raise ConflictError(
                "The table was written while it was copied, so that the copy is behind.",
                hint="Stop its writers, drop the copy without purge, and copy it again.",
            )
        return _done(COPIED, copy)

    def _properties(self, namespace: tuple[str, ...]) -> dict[str, str]:
        from pyiceberg.exceptions import NoSuchNamespaceError

        try:
            properties = self._source.load_namespace_properties(namespace)
        except NoSuchNamespaceError:
            # not every catalog knows the parents of a nested namespace
            return {}
        return {key: value for key, value in properties.items() if key != _MARK}


@contextmanager
def open_copier(source: CatalogConnection, target: CatalogConnection) -> Iterator[tuple[TableCopier, Catalog]]:
    """Open both catalogs; yield the copier and the first catalog.

    :raises UnsupportedError: both are of type object_store.
    """
    if {catalog_type(source.properties), catalog_type(target.properties)} == {OBJECT_STORE}:
        raise UnsupportedError(
            f"Catalogs {source.name!r} and {target.name!r} are both of type object_store: they would share the "
            "versions in a table's folder, and dropping it in one would drop it in the other.",
            hint="Copy to a catalog of another type, drop the table in the first one without purge, and copy it on.",
        )
    with closing(source.load()) as left, closing(target.load()) as right:
        yield TableCopier(left, right), left


def select_tables(existing: Sequence[str], entries: Sequence[str]) -> list[str]:
    """Select tables by names of tables and namespaces, and patterns; without any, select all.

    :raises InputError: one of the names is neither a table nor a namespace with tables.
    """
    namespaces = {name.rsplit(".", count)[0] for name in existing for count in range(1, name.count(".") + 1)}
    patterns = [f"{entry}.*" if entry in namespaces and entry not in existing else entry for entry in entries]
    for pattern in patterns:
        if not pattern.startswith("!") and not matching([pattern], existing):
            what = "table matches" if is_pattern(pattern) else "table or namespace with tables is called"
            raise InputError(f"No {what} {pattern}.", hint="Check the spelling; nothing was copied.")
    if all(pattern.startswith("!") for pattern in patterns):
        patterns.append("*")
    return matching(patterns, existing)


def _outcome(do: Callable[[str], Outcome], name: str) -> Outcome:
    try:
        return do(name)
    except Exception as error:
        # one table must not stop the others
        return {"error": f"{type(error).__name__}: {error}"}


def _done(outcome: str, table: Table) -> Outcome:
    return {"outcome": outcome, "metadata": table.metadata_location, "uuid": str(table.metadata.table_uuid)}


def _require_same(table: Table, there: Table) -> None:
    if table.metadata.table_uuid != there.metadata.table_uuid:
        raise InputError(
            f"The other catalog has another table of this name, in {there.location()}.",
            hint="Rename or drop one of the two.",
        )
    if _content(table.metadata) != _content(there.metadata):
        raise InputError(
            f"The other catalog has this table with other metadata, {there.metadata_location}.",
            hint="One of the two was written since it was copied. Keep that one, and drop the other without purge.",
        )


def _content(metadata: TableMetadata) -> dict[str, Any]:
    content = metadata.model_dump()
    content["properties"] = {k: v for k, v in metadata.properties.items() if k not in _OWN_PROPERTIES}
    return content


def _current(table: Table) -> int | None:
    return table.metadata.current_snapshot_id


def _unreadable(location: str, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"The other catalog cannot read {location}: {why}.",
        hint="Both connections need the same storage, and its properties, as no data is copied.",
    )
