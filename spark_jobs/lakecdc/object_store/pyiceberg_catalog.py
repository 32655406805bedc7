"""A catalog in an object store as a pyiceberg catalog, in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import MetastoreCatalog, PropertiesUpdateSummary
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec, assign_fresh_partition_spec_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import CommitTableResponse, StagedTable, Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder, assign_fresh_sort_order_ids
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from lakecdc.contract.errors import UnsupportedError
from lakecdc.object_store.open_catalog import open_catalog
from lakecdc.object_store.pyiceberg_applier import PyicebergApplier

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.table.update import TableRequirement, TableUpdate

    from lakecdc.object_store.storage import Document
    from lakecdc.object_store.versions import Version


class ObjectStoreCatalog(MetastoreCatalog):
    """Tables in an object store without a catalog service, for pyiceberg; also as ``py-catalog-impl``.

    :param properties: ``warehouse``, ``readable_paths`` and pyiceberg's properties of the storage.
    """

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._catalog = open_catalog(properties, PyicebergApplier())

    def create_table(self, identifier: str | Identifier, *arguments: Any, **named: Any) -> Table:
        names = _table_names(identifier)
        request = self._request(names, *arguments, **named)
        return self._table(names, self._catalog.create_table(names[:-1], request))

    def _create_staged_table(self, identifier: str | Identifier, *arguments: Any, **named: Any) -> StagedTable:
        names = _table_names(identifier)
        request = self._request(names, *arguments, **named)
        metadata = TableMetadataUtil.parse_raw(self._catalog.stage_table(names[:-1], request))
        io = self._load_file_io(metadata.properties, metadata.location)
        return StagedTable(names, metadata, "", io, self)

    def load_table(self, identifier: str | Identifier) -> Table:
        names = _table_names(identifier)
        return self._table(names, self._catalog.load(names))

    def table_exists(self, identifier: str | Identifier) -> bool:
        return self._catalog.exists(_table_names(identifier))

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        names = _table_names(identifier)
        if overwrite:
            raise UnsupportedError(
                "Registering over an existing table is not supported.",
                table=".".join(names),
                hint="Drop the table first, without purging it.",
            )
        return self._table(names, self._catalog.register_table(names, metadata_location))

    def drop_table(self, identifier: str | Identifier) -> None:
        self._catalog.drop_table(_table_names(identifier))

    def purge_table(self, identifier: str | Identifier) -> None:
        self._catalog.drop_table(_table_names(identifier), purge=True)

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        self._catalog.rename_table(_table_names(from_identifier), _table_names(to_identifier))
        return self.load_table(to_identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        names = table.name()
        # as RestCatalog sends them
        conditions, changes = (
            [json.loads(each.model_dump_json()) for each in models] for models in (requirements, updates)
        )
        version = self._catalog.update_table(names, conditions, changes)
        metadata = TableMetadataUtil.parse_raw(version.text)
        return CommitTableResponse(metadata=metadata, **{"metadata-location": version.location})

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Leave old metadata to the catalog, because a late commit could reuse a freed number."""

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        self._catalog.create_namespace(_namespace_names(namespace), properties)

    def drop_namespace(self, namespace: str | Identifier) -> None:
        self._catalog.drop_namespace(_namespace_names(namespace))

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        names = _namespace_names(namespace)
        return [(*names, table) for table in self._catalog.tables(names)]

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        return [*self._catalog.namespaces(_namespace_names(namespace) if namespace else ())]

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        return self._catalog.namespace_properties(_namespace_names(namespace))

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        names = _namespace_names(namespace)
        before = self._catalog.namespace_properties(names)
        summary, _ = self._get_updated_props_and_update_summary(before, removals, updates)
        self._catalog.update_namespace(names, removals or (), updates)
        return summary

    def _refuse_views(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    list_views = load_view = view_exists = register_view = drop_view = _refuse_views

    def _table(self, names: Identifier, version: Version) -> Table:
        metadata = TableMetadataUtil.parse_raw(version.text)
        io = self._load_file_io(metadata.properties, version.location)
        return Table(names, metadata, version.location, io, self)

    def _request(
        self,
        names: Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Document:
        """Return the request that RestCatalog would send."""
        version: Any = int(properties.get(TableProperties.FORMAT_VERSION, TableProperties.DEFAULT_FORMAT_VERSION))
        converted = self._convert_schema_if_needed(schema, version)
        fresh = assign_fresh_schema_ids(converted)
        fields = {
            "name": names[-1],
            "location": location.rstrip("/") if location else None,
            "schema": fresh,
            "partition-spec": assign_fresh_partition_spec_ids(partition_spec, converted, fresh),
            "write-order": assign_fresh_sort_order_ids(sort_order, converted, fresh),
            "properties": properties,
        }
        request = CreateTableRequest.model_validate(fields)
        document: Document = json.loads(request.model_dump_json())
        return document


def _table_names(identifier: str | Identifier) -> Identifier:
    names = MetastoreCatalog.identifier_to_tuple(identifier)
    if len(names) < 2 or not all(names):
        raise NoSuchTableError(f"Missing namespace or invalid name of a table: {'.'.join(names)}")
    return names


def _namespace_names(namespace: str | Identifier) -> Identifier:
    names = MetastoreCatalog.identifier_to_tuple(namespace)
    if not names or not all(names):
        raise NoSuchNamespaceError(f"Empty or invalid name of a namespace: {'.'.join(names)}")
    return names
