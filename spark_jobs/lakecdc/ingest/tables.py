"""Create target tables from the source's columns, evolve them, and refuse tables that cannot be fed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import SparkSession

from lakecdc.contract.errors import InputError
from lakecdc.contract.merging import ORDER_PREFIX
from lakecdc.contract.target import (
    OLD_KEY_COLUMN,
    OP_COLUMN,
    ORDER_COLUMN,
    SOURCE_TABLE_COLUMN,
    UNCHANGED_COLUMN,
    Target,
    is_own_column,
)
from lakecdc.iceberg import definition
from lakecdc.iceberg.table import IcebergTable, carrier_of
from lakecdc.ingest import source_columns
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Column, alike
from lakecdc.ingest.engine import source_tables
from lakecdc.metadata import names
from lakecdc.model.merge_slots import DELETED, order_columns
from lakecdc.sql import quoted_column

# Iceberg cuts string metrics to 16 characters and stores those of 100 columns; look-ups need whole bounds
_FULL_METRICS = "write.metadata.metrics.column."
_LAYOUT_VERSION = "1"
# Iceberg's metadata columns (``MetadataColumns``): Spark cannot read a table with columns of these names
_METADATA = (
    *("_file", "_pos", "_deleted", "_spec_id", "_partition"),
    *("_row_id", "_last_updated_sequence_number"),
)
# types that Iceberg refuses for identifier fields
_NO_KEY = re.compile(r"float|double|array|map|struct|variant")


def prepare(
    spark: SparkSession, catalog: str, table: IcebergTable | None, batch: Batch
) -> tuple[IcebergTable, list[str]]:
    """Create the target, or evolve its columns for a batch.

    :return: the table and the changes of its schema.
    :raises InputError: the batch cannot be applied to the table; nothing is written.
    """
    check_columns(batch)
    if table is None:
        _check_rules(batch, None)
        return create(spark, catalog, batch), []
    _check_rules(batch, table)
    own = [name for name, _, _ in own_columns(batch.target)]
    moves = source_columns.moves(table, batch)
    _refuse_renamed_rules(batch, moves)
    there = {moves.get(name, name) for name in table.column_names}
    missing = [c for c in (*batch.key, *own) if c not in there]
    if missing:
        raise InputError(
            f"The table lacks {', '.join(missing)}; lakecdc did not create it.",
            table=table.name,
            hint="Ingest into a new table, or add the columns (string, timestamp) if its rows need no order.",
        )
    if (
        batch.commit.replaces
        and batch.target.keyed
        and {moves.get(n, n) for n in table.identifier_columns} != {*batch.key}
    ):
        raise InputError(
            f"The source's key is now {', '.join(batch.key)}, but the table's key is "
            f"{', '.join(table.identifier_columns)}.",
            table=table.name,
            hint="A table's key cannot change: load a new table, or drop this one so that the next run loads it.",
        )
    # renames first: a renamed column is not a new one whose older rows need a value
    changes = source_columns.follow(table, batch)
    # the source fills older rows, and so does a table of rows; past events are unchanged
    to_fill = _columns_to_fill(table, batch) if batch.target.mode != "history" else set()
    columns = [(c.name, c.type) for c in batch.columns]
    text_columns = _text_columns(batch, [*source_types(table, batch.target), *(name for name, _ in columns)])
    changes += definition.evolve(table, [*columns, *((name, "string") for name in text_columns)])
    if changes or names.VIEW_BEHIND in table.properties:
        _make_view(table, batch.target)
    if names.VIEW_BEHIND in table.properties:
        table.update_properties({names.VIEW_BEHIND: None})
    source_columns.remember(table, batch)
    source = _source_property(batch)
    if not source.items() <= table.properties.items():
        table.update_properties({**source})
    if to_fill:
        _fill(table, batch, [c for c in batch.columns if c.name in to_fill and c.fill is not None])
    return table, changes


def check_source(table: IcebergTable | None, batch: Batch) -> None:
    """Raise an InputError for events of another source table than the one in the table."""
    known = table.properties.get(names.of_feed(names.SOURCE_TABLE, batch.target.feed)) if table is not None else None
    if table is not None and known is None and batch.source.table:
        _refuse_another_feed(table, batch)
    if known and batch.source.table and source_tables.is_another(batch.target, known, batch.source.table):
        raise InputError(
            f"The events are of {batch.source.table}, but the table was fed from {known}.",
            table=batch.target.table,
            hint='Set "source_table" in the target, with its schema; if the source table was only moved, its new '
            "name continues the table.",
        )


def _refuse_another_feed(table: IcebergTable, batch: Batch) -> None:
    """Raise an InputError if a source table already feeds the table with another feed."""
    newest = carrier_of(table.ancestors())
    for feed in (each.position.feed for each in (newest.feeds if newest else ())):
        known = table.properties.get(names.of_feed(names.SOURCE_TABLE, feed))
        if feed != batch.target.feed and known == batch.source.table:
            raise InputError(
                f"{known} already feeds the table with feed {feed!r}, and now with {batch.target.feed!r}.",
                table=table.name,
                hint="Do not change the feed of a target, and feed a source table through one job only.",
            )


def _source_property(batch: Batch) -> dict[str, str]:
    name = names.of_feed(names.SOURCE_TABLE, batch.target.feed)
    return {name: batch.source.table} if batch.source.table else {}


def lacks_columns(table: IcebergTable, batch: Batch) -> bool:
    """Check whether the table lacks columns of the source, or has them under other names."""
    return not {c.name for c in batch.columns} <= set(table.column_names) or source_columns.changed(table, batch)


def _columns_to_fill(table: IcebergTable, batch: Batch) -> set[str]:
    """Return the new columns that have a default in older rows at the source.

    They are recorded before they are added, so that a killed run does not forget them.
    """
    pending = set(json.loads(table.properties.get(names.FILL, "[]")))
    present = set(table.column_names)
    new = {c.name for c in batch.columns if c.fill is not None and c.name not in present}
    if new - pending:
        table.update_properties({names.FILL: json.dumps(sorted(pending | new))})
    return pending | new


def _fill(table: IcebergTable, batch: Batch, columns: Sequence[Column]) -> None:
    filled, before = None, table.head()
    if columns and before is not None:
        values = ", ".join(f"{quoted_column(c.name)} = {_filled(batch, c, f':v{i}')}" for i, c in enumerate(columns))
        table.spark.sql(f"UPDATE {table.sql_name} SET {values}", {f"v{i}": c.fill for i, c in enumerate(columns)})
        after = table.refresh().head()
        # if others have committed in between, our snapshot is unknown
        filled = str(after.id) if after is not None and after.parent_id == before.id else None
    # columns of other jobs that feed the table
    left = sorted({*json.loads(table.properties.get(names.FILL, "[]"))} - {c.name for c in batch.columns})
    pending = json.dumps(left) if left else None
    table.update_properties({names.FILL: pending, **({names.FILLED: filled} if filled else {})})


def _filled(batch: Batch, column: Column, value: str) -> str:
    """Return the SQL of a column in older rows; if other jobs feed the table, in the rows fed by this one."""
    merge, value = batch.target.merge, f"CAST({value} AS {column.type})"
    group = next((g for g in merge.groups if column.name in g.members), None) if merge else None
    if group is None or not (group.source_table or batch.target.feed):
        return value
    order = quoted_column(f"{ORDER_PREFIX}{group.title}")
    has_row = f"{order} IS NOT NULL AND NOT endswith({order}, '{DELETED}')"
    return f"CASE WHEN {has_row} THEN {value} ELSE {quoted_column(column.name)} END"


def create(spark: SparkSession, catalog: str, batch: Batch) -> IcebergTable:
    target = batch.target
    # the row of a TRUNCATE in a change log has no key
    required = () if target.mode == "history" else batch.key
    columns = [(c.name, c.type, c.name in required) for c in batch.columns] + own_columns(target)
    columns += [(name, "string", False) for name in _text_columns(batch, [c.name for c in batch.columns])]
    properties = {
        "format-version": str(target.format_version),
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": target.merge_mode or "merge-on-read",
        "write.parquet.compression-codec": "zstd",
        # ingestion must not give up on a busy table (Iceberg's default is 4)
        "commit.retry.num-retries": "20",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "100",
        names.LAYOUT: _LAYOUT_VERSION,
        **{f"{_FULL_METRICS}{column}": "full" for column in (*batch.key, ORDER_COLUMN)},
        **source_columns.properties(batch),
        **_source_property(batch),
        **({names.MERGE: target.merge.encode()} if target.merge else {}),
        **target.properties,
    }
    table = definition.create_table(
        spark,
        catalog,
        target.table,
        definition.TableDefinition(columns, target.partition_by, properties, batch.key if target.keyed else ()),
    )
    if target.mode == "upsert":
        check_partitioning(table, batch.key)
    if not target.keyed:
        # the nightly sort needs an order, and there are no identifier fields
        definition.order_by(table, [ORDER_COLUMN])
    _make_view(table, target)
    return table


def source_types(table: IcebergTable, target: Target) -> dict[str, str]:
    """Return the Spark SQL types of the columns that a target's table has from its source."""
    own = {name for name, _, _ in own_columns(target)}
    return {name: kind for name, kind in definition.source_types(table).items() if name not in own}


def own_columns(target: Target) -> list[tuple[str, str, bool]]:
    """Return the columns that lakecdc adds to a target's table: name, SQL type, NOT NULL.

    A merged table has further ones for the order of values, see ``model.merge_slots``, and its history table may have
    one for source tables.
    """
    if target.mode != "history":
        return definition.own_columns()
    kinds = [(OP_COLUMN, "string"), (UNCHANGED_COLUMN, "array<string>"), (OLD_KEY_COLUMN, "string")]
    return [*[(name, kind, False) for name, kind in kinds], *definition.own_columns()]


def _make_view(table: IcebergTable, target: Target) -> None:
    """Create the view without lakecdc's own columns, except for a change log, which needs them."""
    if target.mode != "history":
        definition.make_view(table, [name for name in table.column_names if is_own_column(name)])


def _text_columns(batch: Batch, columns: Iterable[str]) -> list[str]:
    """Return the order columns of a merged table, and the source table's column of its history table."""
    merge = batch.target.merge
    if batch.target.source_column == SOURCE_TABLE_COLUMN:
        return [SOURCE_TABLE_COLUMN]
    return order_columns(merge, dict.fromkeys(columns), batch.key) if merge else []


def _check_rules(batch: Batch, table: IcebergTable | None) -> None:
    """Raise an InputError for merge rules that do not fit a column, or differ from the table's."""
    merge = batch.target.merge
    known = table.properties.get(names.MERGE) if table is not None else None
    given = merge.encode() if merge else None
    if table is not None and known != given:
        raise InputError(
            f"Its rows are merged by {known or 'no rules'}, but the target has {given or 'none'}.",
            table=table.name,
            hint="Rows cannot be merged again: restore the rules, or feed a new table.",
        )
    if merge is None:
        return
    columns = [c.name for c in batch.columns]
    # events of groups' source tables never change other columns of the table
    known_columns = source_types(table, batch.target) if table is not None else {}
    columns = [c for c in columns if c not in known_columns] if merge.by_source_table else [*known_columns, *columns]
    grouped = {*batch.key, *(name for group in merge.groups for name in group.members)}
    alone = sorted({*columns} - grouped)
    if batch.target.feed and alone and batch.rows is not None:
        raise InputError(
            f"{', '.join(alone)} are in no group of merge, and several jobs feed the table.",
            table=batch.target.table,
            hint="Exclude them with exclude_columns, or feed a new table whose merge has them in a group.",
        )
    for name, why in merge.misfits({c.name: c.type for c in batch.columns if c.name not in batch.key}):
        raise InputError(f"The rule of the column {name!r} in merge does not fit: {why}.", table=batch.target.table)


def _refuse_renamed_rules(batch: Batch, moves: Mapping[str, str]) -> None:
    """Raise an InputError for a renamed column whose merge rule or order depends on its name."""
    merge = batch.target.merge
    if merge is None:
        return
    known = {name for name in moves if f"{ORDER_PREFIX}{name}" in _text_columns(batch, [name])}
    known |= {*moves} & {*merge.columns, *(name for group in merge.groups for name in group.members)}
    for name in sorted(known):
        raise InputError(
            f"The source renamed {name!r} to {moves[name]!r}, and merge has a rule for {name!r}.",
            table=batch.target.table,
            hint=f'Keep the name: "clean": {{"rename": {{"{moves[name]}": "{name}"}}}}, or feed a new table.',
        )


def check_columns(batch: Batch) -> None:
    """Raise an InputError without a key, for unknown key columns, or names that differ only in case."""
    table, names_ = batch.target.table, [c.name for c in batch.columns]
    if not batch.key and batch.target.keyed and batch.rows is not None:
        raise InputError(
            f"The source table has no key, and mode {batch.target.mode} needs one.",
            table=table,
            hint='Give it a primary key, set "key" in the target to columns that identify a row, or use mode append '
            "or history.",
        )
    missing = sorted(set(batch.key) - set(names_))
    # without rows, the current column names may be unknown
    if missing and batch.rows is not None:
        raise InputError(f"The key columns {missing} are not among the source's columns {names_}.", table=table)
    if batch.target.keyed:
        _check_key_types(batch)
    reserved = (*[own[0] for own in own_columns(batch.target)], *_text_columns(batch, names_), *_METADATA)
    twice = {name.lower() for name in alike((*names_, *reserved))}
    if twice:
        raise InputError(
            f"Column names differ by case only, or are reserved: {sorted(twice)}.",
            table=table,
            hint="Exclude one with exclude_columns, or rename it with clean.rename.",
        )


def _check_key_types(batch: Batch) -> None:
    for column in batch.columns:
        if column.name in batch.key and _NO_KEY.match(column.type):
            raise InputError(
                f"The key column {column.name!r} is of type {column.type}, which Iceberg does not allow in keys.",
                table=batch.target.table,
                hint=f'Give it another type in the target, as in "columns": {{"{column.name}": "string"}}.',
            )


def check_partitioning(table: IcebergTable, key: Sequence[str], spec_ids: Sequence[int] | None = None) -> None:
    """Refuse partitions that do not derive from the key: an equality delete only reaches its own partition.

    :param spec_ids: specs to check; default: the current one.
    :raises InputError: a partition derives from other columns.
    """
    for spec_id in spec_ids if spec_ids is not None else [definition.current_spec_id(table)]:
        outside = columns_outside_key(table, key, spec_id)
        if outside:
            raise InputError(
                f"Partition spec {spec_id} derives from {outside}, which are not key columns: "
                "a changed row could not be found in its old partition.",
                table=table.name,
                hint=f"Partition by the key, such as bucket(8, {key[0]}), add the columns to the key, or use mode "
                "merge. compact_data_files moves files partitioned by a dropped column to the current spec.",
            )


def columns_outside_key(table: IcebergTable, key: Sequence[str], spec_id: int) -> list[str]:
    """Return the columns outside the key that a partition spec derives from."""
    return sorted(set(definition.spec_columns(table, spec_id)) - set(key))
