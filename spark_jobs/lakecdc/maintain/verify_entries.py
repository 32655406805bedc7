"""Proof that rewritten manifests list what was listed before: the same files, with all that is known of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import VerificationError
from lakecdc.iceberg.manifests import staged_entries
from lakecdc.maintain.verify_rows import Proof, read_back
from lakecdc.metadata.manifests import Manifest
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakecdc.iceberg.manifests import StagedManifests
    from lakecdc.iceberg.table import IcebergTable

_ITS_OWN = ("snapshot_id", "sequence_number", "file_sequence_number")
_NAME = ("file_path", "content_offset")
#: differing entries that are looked at for the error
_SOME = 1000


def check_entries(table: IcebergTable, staged: StagedManifests) -> None:
    """Compare all live entries of a snapshot with those that it would have with rewritten manifests.

    Two digests are computed by Spark, from manifests alone. What is compared is the file, data and file sequence
    numbers, snapshot, partition spec and partition, what a delete file refers to, row ids and metrics.

    :raises VerificationError: they differ; it says in what.
    """
    counted = told_counts(staged.before, staged.after)
    if counted:
        raise _refusal(table, counted)
    old, new = (
        comparable_entries(table.metadata("entries", staged.base)),
        comparable_entries(staged_entries(table, staged)),
    )
    wanted = Proof(tuple(old.columns), "all entries")
    if old.columns == new.columns and read_back(old, wanted) == read_back(new, wanted):
        return
    lost, found = ([row.asDict() for row in a.exceptAll(b).limit(_SOME).collect()] for a, b in ((old, new), (new, old)))
    raise _refusal(table, told_difference(lost, found))


def comparable_entries(entries: DataFrame) -> DataFrame:
    """Live entries of the metadata table ``entries``, each fact a column that can be compared."""
    from pyspark.sql import functions as F

    fields = [field.name for field in entries.schema["data_file"].dataType.fields]  # type: ignore[attr-defined]
    facts = [_comparable(entries, f"data_file.{quoted_column(field)}", field) for field in fields]
    return entries.where(F.col("status") < 2).select(*_ITS_OWN, *facts)


def told_counts(before: Iterable[Manifest], after: Iterable[Manifest]) -> str | None:
    """How the numbers of live files differ that manifest lists give, by which readers leave manifests out."""
    old, new = _counted(before), _counted(after)
    for spec_id, deletes in sorted(old.keys() | new.keys()):
        if old[spec_id, deletes] != new[spec_id, deletes]:
            kind = "delete" if deletes else "data"
            return (
                f"{new[spec_id, deletes]} {kind} files of partition spec {spec_id} instead of {old[spec_id, deletes]}"
            )
    return None


def told_difference(lost: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> str:
    """Say how entries differ, of the first that does.

    :param lost: entries that are not there any more as they were, by column.
    :param found: entries that were not there like that.
    """
    by_name = {_name(entry): entry for entry in found}
    for entry in lost:
        other = by_name.get(_name(entry))
        if other is None:
            return f"not {entry['file_path']} (of {len(lost)} entries that are lost or changed)"
        changed = ", ".join(f"{key} {other[key]} instead of {entry[key]}" for key in entry if entry[key] != other[key])
        return f"{entry['file_path']} with {changed}"
    return f"also {found[0]['file_path']}" if found else "entries with other columns"


def _counted(manifests: Iterable[Manifest]) -> Counter[tuple[int, bool]]:
    found = Counter[tuple[int, bool]]()
    for manifest in manifests:
        found[manifest.spec_id, manifest.deletes] += manifest.files
    return found


def _name(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(entry.get(key) for key in _NAME)


def _comparable(entries: DataFrame, column: str, name: str) -> Column:
    """A fact as Spark can hash and compare it, nulls included."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import MapType, StructType

    kind, value = entries.select(column).schema[0].dataType, F.col(column)
    if isinstance(kind, MapType):
        value = F.sort_array(F.map_entries(value))
    elif isinstance(kind, StructType):
        # a hash passes over nulls, so that (null, 1) and (1, null) would have the same
        value = F.to_json(value)
    return value.alias(name)


def _refusal(table: IcebergTable, difference: str) -> VerificationError:
    return VerificationError(
        f"The rewritten manifests would list other files than before: {difference}.",
        table=table.name,
        hint="Nothing was published. If it happens again, look at the storage and at the Iceberg version.",
    )
