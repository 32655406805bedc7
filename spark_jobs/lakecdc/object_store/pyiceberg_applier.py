"""Make a table's new metadata with pyiceberg, without a JVM."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from lakecdc.contract.errors import InputError, UnsupportedError
from lakecdc.object_store.conditional_writes import ID
from lakecdc.object_store.storage import Document, check_creation

#: what to do if pyiceberg cannot apply an update
HINT = "Do it in a job on Spark, where Iceberg's own code changes the metadata."
_DEFAULT_VERSION = 2
_VERSIONS = (2, 3)
# tolerance of Iceberg's core for times that go back
_TOLERANCE_MS = 60_000
# properties that Iceberg's core sets for new tables only
_NEW_PROPERTIES = {"write.parquet.compression-codec": "zstd"}

# defaults of absent members in Iceberg's specifications
_DEFAULTS: dict[str, Any] = {
    "current-snapshot-id": -1,
    "schema-id": 0,
    "sequence-number": 0,
    "spec-id": 0,
    "stage-create": False,
}
# members with a type as text, in which spaces are ignored
_TYPES = frozenset({"type", "element", "key", "value"})


class PyicebergApplier:
    """An :class:`Applier` that applies updates by pyiceberg's models.

    pyiceberg drops members that it does not know. So all that it parses is written back and compared, and a difference
    is refused.
    """

    def create(self, request: Document, location: str) -> str:
        from pyiceberg.catalog.rest import CreateTableRequest
        from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
        from pyiceberg.table.metadata import new_table_metadata
        from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

        optional = {"location": None, "partition-spec": None, "write-order": None}
        parsed = _parsed(CreateTableRequest, {**optional, **request}, "the request")
        with _refusing_input():
            version = int(parsed.properties.get("format-version", _DEFAULT_VERSION))
            _check_version(version)
            metadata = new_table_metadata(
                parsed.table_schema,
                parsed.partition_spec or UNPARTITIONED_PARTITION_SPEC,
                parsed.write_order or UNSORTED_SORT_ORDER,
                location.rstrip("/"),
                {**_NEW_PROPERTIES, **parsed.properties},
            )
        given, fresh = (_without_ids(one.model_dump(mode="json")) for one in (parsed.table_schema, metadata.schema()))
        _refuse_difference(given, fresh, "schema")
        return _text(metadata.model_copy(update={"next_row_id": 0}) if version >= 3 else metadata)

    def apply(
        self, text: str, metadata_location: str, requirements: Sequence[Document], updates: Sequence[Document]
    ) -> str:
        from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

        from lakecdc.object_store.pyiceberg_updates import Updates

        parsed_updates = [_parsed(TableUpdate, document, f"updates[{index}]") for index, document in enumerate(updates)]
        conditions = [
            _parsed(TableRequirement, one, f"requirements[{index}]") for index, one in enumerate(requirements)
        ]
        if not text:
            check_creation(requirements)
        base = _read(text) if text else _empty(parsed_updates)
        with _refusing_input():
            for condition in conditions if text else ():
                # pyiceberg refuses a required absence of a ref in a table without snapshots
                is_new_ref = condition.type == "assert-ref-snapshot-id" and condition.snapshot_id is None
                if not (is_new_ref and condition.ref not in base.refs):
                    condition.validate(base)
            prepared = Updates(base)
            known = tuple(update for one in parsed_updates if (update := prepared.prepare(one)) is not None)
            updated = update_table_metadata(base, known, metadata_location=metadata_location or None)
            if updated == base:
                return text
            return _text(_completed(base, updated, prepared))


def _parsed(model: Any, document: Document, path: str) -> Any:
    from pydantic import ValidationError

    given = _significant(document)
    try:
        parsed = _adapter(model).validate_json(json.dumps(given))
    except ValidationError as unknown:
        problem = unknown.errors()[0]
        where = ".".join(map(str, (path, *problem["loc"])))
        raise UnsupportedError(f"pyiceberg cannot read {where}: {problem['msg']}", hint=HINT) from unknown
    written = parsed.model_dump(mode="json")
    if given.get("action") == "set-statistics":
        # a deprecated copy of the one in the statistics
        written.pop("snapshot-id", None)
        given.pop("snapshot-id", None)
    _refuse_difference(given, written, path)
    return parsed


def _significant(document: Document) -> dict[str, Any]:
    """Return a request without the members that clients add and Iceberg's core ignores."""
    given = dict(document)
    if given.get("action") == "add-schema":
        # servers compute it; Iceberg's Java client still sends it
        given.pop("last-column-id", None)
    for name in ("partition-spec", "spec"):
        if isinstance(spec := given.get(name), dict):
            # DuckDB gives specs the type of schemas
            given[name] = {key: value for key, value in spec.items() if (key, value) != ("type", "struct")}
    return given


@lru_cache(maxsize=4)
def _adapter(model: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(model)


def _read(text: str) -> Any:
    """Parse a table's metadata, after checking that pyiceberg writes it unchanged."""
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.table.metadata import TableMetadataUtil

    given = {name: value for name, value in json.loads(text).items() if name != ID}
    _check_version(given.get("format-version"))
    try:
        metadata = TableMetadataUtil.parse_raw(text)
    except ValidationError as unknown:
        raise UnsupportedError(f"pyiceberg cannot read the table's metadata: {unknown}", hint=HINT) from unknown
    current = given.get("current-snapshot-id")
    if current not in (None, -1) and not given.get("refs"):
        # every table with a current snapshot has this ref, even if it is not written
        given["refs"] = {"main": {"snapshot-id": current, "type": "branch"}}
    written = metadata.model_dump(mode="json")
    _refuse_difference(given, written, "metadata")
    if metadata.format_version == 3 and metadata.next_row_id is None:
        raise UnsupportedError("The table's metadata has no next-row-id, which format v3 needs.", hint=HINT)
    return metadata


def _check_version(version: Any) -> None:
    if version not in _VERSIONS:
        raise UnsupportedError(f"pyiceberg cannot write metadata of format v{version}.", hint=HINT)


def _refuse_difference(given: Any, written: Any, path: str) -> None:
    if (lost := first_difference(given, written, path)) is not None:
        raise UnsupportedError(f"pyiceberg drops or changes {lost}.", hint=HINT)


def _empty(updates: Sequence[Any]) -> Any:
    """Return empty metadata, for a table that updates create."""
    from pyiceberg.table.metadata import TableMetadataV2, TableMetadataV3

    versions = (update.format_version for update in updates if update.action == "upgrade-format-version")
    version = next(versions, _DEFAULT_VERSION)
    _check_version(version)
    nothing: dict[str, Any] = {"location": "", "last_column_id": 0, "last_updated_ms": 0}
    nothing |= {"current_schema_id": -1, "default_spec_id": -1, "default_sort_order_id": -1}
    if version >= 3:
        return TableMetadataV3.model_construct(**nothing, format_version=version, next_row_id=0)
    return TableMetadataV2.model_construct(**nothing, format_version=version)


def _completed(base: Any, updated: Any, request: Any) -> Any:
    """Return updated metadata with the further changes that Iceberg's core makes."""
    if not updated.location:
        raise InputError("The table has no location. Set one by set-location.")
    changed: dict[str, Any] = {"location": updated.location.rstrip("/"), "last_updated_ms": int(time.time() * 1000)}
    if request.removed:
        # snapshots keep their parents' ids, and partition statistics are removed with their snapshots
        parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in base.snapshots}
        changed["snapshots"] = [
            snapshot.model_copy(
                update={"parent_snapshot_id": parents.get(snapshot.snapshot_id, snapshot.parent_snapshot_id)}
            )
            for snapshot in updated.snapshots
        ]
        changed["partition_statistics"] = [
            file for file in updated.partition_statistics if file.snapshot_id not in request.removed
        ]
    changed["snapshot_log"] = _snapshot_log(base, updated, request)
    completed = updated.model_copy(update=changed)
    _check_times(completed)
    return completed


def _snapshot_log(base: Any, updated: Any, request: Any) -> list[Any]:
    """Return the log of current snapshots, without gaps and without the intermediate ones of a request."""
    remaining = sum(entry.snapshot_id not in request.removed for entry in base.snapshot_log)
    between = request.currents - {updated.current_snapshot_id}
    if not request.removed and not between:
        return list(updated.snapshot_log)
    known = {snapshot.snapshot_id for snapshot in updated.snapshots}
    log: list[Any] = []
    for entry in (*base.snapshot_log, *updated.snapshot_log[remaining:]):
        if entry.snapshot_id not in known:
            log = [] if request.removed else log
        elif entry.snapshot_id not in between:
            log.append(entry)
    current = updated.current_snapshot_id
    if current is not None and (not log or log[-1].snapshot_id != current):
        raise InputError(f"The snapshot log does not end with the current snapshot {current}.")
    return log


def _check_times(metadata: Any) -> None:
    """Refuse times that go back, as Iceberg's core could no longer read the table."""
    for log in (metadata.snapshot_log, metadata.metadata_log):
        times = [*(entry.timestamp_ms for entry in log), metadata.last_updated_ms]
        for before, after in zip(times, times[1:], strict=False):
            if after < before - _TOLERANCE_MS:
                raise InputError(
                    f"Time {after} of an update lies more than a minute before {before}, the one before it. Check the"
                    " clocks of the writers."
                )


def _without_ids(value: Any) -> Any:
    """Return a schema without the ids that a new table assigns."""
    if isinstance(value, dict):
        ids = ("id", "element-id", "key-id", "value-id", "identifier-field-ids", "schema-id")
        return {name: _without_ids(member) for name, member in value.items() if name not in ids}
    return [_without_ids(member) for member in value] if isinstance(value, list) else value


def _text(metadata: Any) -> str:
    """Return metadata as JSON, after a check by parsing it."""
    from pyiceberg.table.metadata import TableMetadataUtil

    text = json.dumps(metadata.model_dump(mode="json"))
    TableMetadataUtil.parse_raw(text)
    return text


@contextmanager
def _refusing_input() -> Iterator[None]:
    """Raise pyiceberg's errors about invalid updates as our own."""
    from pyiceberg.exceptions import ValidationError

    try:
        yield
    except StopIteration as missing:
        raise InputError("The table needs a current schema, a default partition spec and a sort order.") from missing
    except (ValueError, ValidationError, NotImplementedError, KeyError) as invalid:
        raise InputError(f"The update is not valid: {invalid}") from invalid


def first_difference(given: Any, written: Any, path: str = "") -> str | None:
    """Return the path of the first difference between two documents; None if they are equivalent.

    An absent member equals null, an empty list or object, and the default in the specification.
    """
    if isinstance(given, dict) and isinstance(written, dict):
        members = {
            f"{path}.{name}" if path else name: (_normalized(given, name), _normalized(written, name))
            for name in (*given, *(name for name in written if name not in given))
        }
    elif isinstance(given, list) and isinstance(written, list) and len(given) == len(written):
        members = {f"{path}[{index}]": pair for index, pair in enumerate(zip(given, written, strict=True))}
    else:
        return None if type(given) is type(written) and given == written else path
    return next((where for at, pair in members.items() if (where := first_difference(*pair, at)) is not None), None)


def _normalized(document: dict[str, Any], name: str) -> Any:
    value = document.get(name)
    if value in ([], {}) or value == _DEFAULTS.get(name, ()):
        return None
    return value.replace(" ", "") if name in _TYPES and isinstance(value, str) else value
