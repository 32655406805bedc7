"""The ``target`` part of an ingest spec: how one Iceberg table is fed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lakecdc.contract import fields
from lakecdc.contract.aggregating import ROWS_COLUMN
from lakecdc.contract.checks import Check
from lakecdc.contract.errors import SpecError
from lakecdc.contract.merging import ORDER_PREFIX, Merge, feed_mistakes, merge_mistakes
from lakecdc.metadata.names import is_side_table
from lakecdc.metadata.readers import Deletes, Form, ReaderName, choose_form, equality_refusal

#: columns that lakecdc adds to every table; a view named ``<table>_view`` hides them, except in mode ``history``
ORDER_COLUMN = "_lakecdc_order"
TIME_COLUMN = "_lakecdc_source_time"
#: further columns of a change log: the kind of event, its unchanged columns that the source omitted, the row's former
#: key (JSON) if the event changed it, and, for groups of ``merge``, its source table
OP_COLUMN = "_lakecdc_op"
UNCHANGED_COLUMN = "_lakecdc_unchanged"
OLD_KEY_COLUMN = "_lakecdc_old_key"
SOURCE_TABLE_COLUMN = "_lakecdc_source_table"


def is_own_column(name: str) -> bool:
    """Check whether a column of this name is one that lakecdc adds, other than those of every change log."""
    return name in (ORDER_COLUMN, TIME_COLUMN, ROWS_COLUMN, SOURCE_TABLE_COLUMN) or name.startswith(ORDER_PREFIX)


Encoding = Literal[
    "base64",
    "decimal_bytes",
    "variable_decimal",
    "epoch_days",
    "epoch_millis",
    "epoch_micros",
    "epoch_nanos",
    "time_millis",
    "time_micros",
    "time_nanos",
]
Mode = Literal["upsert", "merge", "auto", "append", "history"]
#: modes whose tables hold one row per key; the other two only ever append
KEYED_MODES = ("upsert", "merge", "auto")
# modes that write the deletes of the setting ``deletes``
_RESOLVING = ("upsert", "auto")
_NAME = r"(?:\w+|`(?:[^`]|``)+`)"
_COLUMN = rf"{_NAME}(?:\.{_NAME})*"
_TRANSFORM = re.compile(
    rf"\s*(?:{_COLUMN}"
    rf"|(?i:bucket|truncate)\s*\(\s*[1-9]\d*\s*,\s*{_COLUMN}\s*\)"
    rf"|(?i:years?|months?|days?|hours?|date|date_hour|identity)\s*\(\s*{_COLUMN}\s*\))\s*"
)


@dataclass(frozen=True)
class Cleaning:
    """Cleaning of one table's rows, in this order: rename, compute, filter, select.

    :param rename: new names by the source's names; key columns too.
    :param compute: Spark SQL expressions by column, over the renamed columns, such as
        ``get_json_object(doc, '$.city')`` or ``to_timestamp(day, 'dd.MM.yyyy')``. A name that the source has too
        replaces its column.
    :param filter: Spark SQL condition for the rows to keep, over stored columns. A row that an update takes out of it
        is deleted.
    :param select: columns to keep; default: all. Key columns are always kept.
    :param event_time: time column of the table; its newest value, less ``lateness_seconds``, is the table's watermark.
    :param lateness_seconds: how late rows may arrive.
    """

    rename: dict[str, str] = field(default_factory=dict)
    compute: dict[str, str] = field(default_factory=dict)
    filter: str | None = None
    select: tuple[str, ...] = ()
    event_time: str | None = None
    lateness_seconds: float = 0.0

    def __post_init__(self) -> None:
        twice = {name for name in self.rename.values() if list(self.rename.values()).count(name) > 1}
        if twice:
            raise SpecError(f"clean.rename gives the name {sorted(twice)[0]!r} twice.")
        if self.lateness_seconds and not self.event_time:
            raise SpecError("clean.lateness_seconds is set without clean.event_time.")

    def renamed(self, name: str) -> str:
        """Return the table's name of a source column."""
        return self.rename.get(name, name)


@dataclass(frozen=True)
class Target:
    """A table to feed.

    :param table: ``namespace.name`` in the catalog.
    :param key: columns that identify a row; default: the source's primary key, if the source has one.
    :param mode: ``upsert`` and ``merge`` keep the source's current rows, by equality deletes or ``MERGE INTO``;
        ``auto`` takes the better of the two for each batch; ``append`` adds the rows of an insert-only source;
        ``history`` adds one row per change event.
    :param deletes: how ``upsert`` removes rows: ``equality`` by equality deletes; ``resolved`` by position deletes or
        deletion vectors, whose rows are found before the commit, so that every engine reads the table at any time.
    :param partition_by: Iceberg transforms in SQL, such as ``bucket(8, id)`` or ``days(ts)``, for a new table. With
        ``upsert`` they must derive from the key.
    :param format_version: format version of a new table.
    :param readers: engines that read the table, such as ``snowflake`` and ``trino``: they choose ``format_version`` and
        ``deletes``, unless these are set.
    :param freshness: promised highest age of the newest source moment that readers see, such as ``30m``.
    :param source_table: ``schema.table`` at the source; default: the table's own name, in any schema for messages.
    :param source_tables: regular expressions of source tables, matched against ``schema.table`` or its last part. If
        ``table`` contains ``{table}`` (and ``{schema}``), each source table feeds a separate target; else all feed this
        one, as shards.
    :param exclude_source_tables: regular expressions of source tables to leave out.
    :param source_column: with shards: column for the source table's name. As part of ``key`` it keeps the shards' rows
        apart.
    :param fold_case: for messages: convert column names to lower case; ``key`` and all other settings use lower case.
    :param columns: Spark SQL types by column, instead of the derived ones.
    :param encodings: by column, how the source writes values that no schema explains: ``base64``, ``decimal_bytes``
        (Debezium's precise decimals), ``variable_decimal``, ``epoch_days``, ``epoch_millis``, ``epoch_micros``,
        ``epoch_nanos``, ``time_millis``, ``time_micros`` or ``time_nanos``.
    :param exclude_columns: source columns to leave out.
    :param clean: rename, compute, filter and select columns; event time.
    :param on_truncate: effect of a TRUNCATE at the source: ``apply`` empties the table, or with ``feed`` its groups,
        ``mark`` keeps its rows and notes it in snapshot summary and report, ``stop`` fails the table.
    :param on_dropped_column: effect of a column dropped at the source, if the source reports it: ``keep`` keeps it,
        null in later rows; ``drop`` drops it; ``stop`` fails the table.
    :param properties: further properties of a new table.
    :param merge: rules for each column of a row after several events; default: the values of the last event.
    :param feed: name of this job among several that feed the table, each from its own source and position, which
        ``groups`` of ``merge`` allow; one of them may have none, and each keeps its name.
    :param merge_mode: how ``MERGE`` changes files; default: the table's ``write.merge.mode``, which is merge-on-read in
        tables that lakecdc created.
    :param history_table: ``namespace.name`` of a change log fed from the same batches; keyed modes only.
    :param history_partition_by: transforms of a new history table, such as ``days(_lakecdc_source_time)``.
    :param publish: ``audited`` publishes a batch only if its checks pass; default: publish every batch.
    :param checks: with ``publish``: checks of each batch's rows.
    :param table_checks: with ``publish``: checks of the table including the batch.
    """

    table: str
    key: tuple[str, ...] = ()
    mode: Mode = "upsert"
    deletes: Literal["equality", "resolved"] = "equality"
    partition_by: tuple[str, ...] = ()
    format_version: Literal[2, 3] = 2
    readers: tuple[ReaderName, ...] = ()
    freshness: str | None = None
    source_table: str | None = None
    source_tables: tuple[str, ...] = ()
    exclude_source_tables: tuple[str, ...] = ()
    source_column: str | None = None
    fold_case: bool = False
    columns: dict[str, str] = field(default_factory=dict)
    encodings: dict[str, Encoding] = field(default_factory=dict)
    exclude_columns: tuple[str, ...] = ()
    clean: Cleaning | None = None
    on_truncate: Literal["apply", "mark", "stop"] = "apply"
    on_dropped_column: Literal["keep", "stop", "drop"] = "keep"
    properties: dict[str, str] = field(default_factory=dict)
    merge: Merge | None = None
    feed: str = ""
    merge_mode: Literal["copy-on-write", "merge-on-read"] | None = None
    history_table: str | None = None
    history_partition_by: tuple[str, ...] = ()
    publish: Literal["audited"] | None = None
    checks: tuple[Check, ...] = ()
    table_checks: tuple[Check, ...] = ()

    @property
    def keyed(self) -> bool:
        """Whether the table holds one row per key."""
        return self.mode in KEYED_MODES

    @property
    def is_aggregated(self) -> bool:
        """Whether the table is aggregated from its history table, which is fed in its place."""
        return self.merge is not None and self.merge.engine == "aggregate"

    @property
    def kinds_of_deletes(self) -> tuple[Deletes, ...]:
        """Kinds of deletes that its mode can write, the cheapest first."""
        if self.mode in _RESOLVING:
            return "equality", "resolved"
        merges = self.mode == "merge" and self.merge_mode != "copy-on-write"
        return ("resolved",) if merges else ("none",)

    @property
    def form(self) -> Form:
        """Form of a new table of this target."""
        kinds = self.kinds_of_deletes
        return Form(self.format_version, self.deletes if self.mode in _RESOLVING else kinds[0])

    @property
    def is_pattern(self) -> bool:
        """Whether it expands to one target per source table."""
        return "{" in self.table

    @property
    def source_name(self) -> str:
        """Name of its only source table, or the end of that name."""
        return self.source_table or self.table.rpartition(".")[2]

    @property
    def only_source(self) -> str | None:
        """Name of the source table of events that name none; None if several tables feed it."""
        return None if self.source_tables else self.source_name

    def matches(self, source_table: str) -> bool:
        """Check whether ``source_tables`` match a source table.

        :param source_table: such as ``shop.orders``, with any parts before, such as a topic's prefix.
        """
        parts = source_table.split(".")
        names = [".".join(parts[i:]) for i in range(len(parts))]

        def among(patterns: tuple[str, ...]) -> bool:
            return any(re.fullmatch(p, n) for p in patterns for n in names)

        return among(self.source_tables) and not among(self.exclude_source_tables)

    def for_source_table(self, source_table: str) -> Target:
        """Return the target of one source table."""
        parts = ["", *source_table.split(".")]
        names = {"schema": parts[-2], "table": parts[-1]}
        return replace(
            self,
            table=self.table.format(**names),
            history_table=self.history_table.format(**names) if self.history_table else None,
            source_table=source_table,
            source_tables=(),
            exclude_source_tables=(),
        )

    def history(self) -> Target:
        """Return the target's change log as a separate target, without a promised freshness."""
        assert self.history_table
        return replace(
            self,
            table=self.history_table,
            source_table=self.only_source,
            source_column=SOURCE_TABLE_COLUMN if self.merge and self.merge.by_source_table else self.source_column,
            freshness=None,
            mode="history",
            deletes="equality",
            on_dropped_column="keep",
            partition_by=self.history_partition_by,
            properties={},
            merge=None,
            merge_mode=None,
            history_table=None,
            history_partition_by=(),
            publish=None,
            checks=(),
            table_checks=(),
        )


def parse_targets(document: Any) -> tuple[Target, ...]:
    """Parse the spec's ``target``, an object or a list of objects.

    :raises SpecError: an empty list, a table named twice or like lakecdc's own tables, an excluded key column, settings
        of another mode, readers that no form of the table fits.
    """
    if isinstance(document, Mapping):
        targets: tuple[Target, ...] = (_parsed(document, "target"),)
    elif isinstance(document, list | tuple) and document:
        targets = tuple(_parsed(item, f"target[{i}]") for i, item in enumerate(document))
    else:
        raise SpecError("target must be an object or a non-empty list of objects, one per table.")
    seen: set[str] = set()
    for target in targets:
        for name, place in ((target.table, "table"), (target.history_table, "history_table")):
            if name is not None:
                _check_name(name, place)
                if name in seen:
                    raise SpecError(f"target names {name!r} twice.")
                seen.add(name)
        _check(target)
    return targets


def _parsed(document: Any, where: str) -> Target:
    target: Target = fields.parse(Target, document, where)
    return _for_readers(target, document) if target.readers else target


def _for_readers(target: Target, given: Mapping[str, Any]) -> Target:
    """Return a target in the cheapest form that its readers read, among those that the given settings allow."""
    if "format-version" in target.properties:
        raise SpecError(
            "Its properties have a format-version, which would override the one for its readers.",
            table=target.table,
            hint="Remove it, or set format_version instead.",
        )
    versions = (target.format_version,) if "format_version" in given else (2, 3)
    resolving = target.mode in _RESOLVING
    kinds = (target.deletes,) if resolving and "deletes" in given else target.kinds_of_deletes
    form = choose_form(target.readers, versions, kinds, target.table)
    chosen: dict[str, Any] = {"format_version": form.format_version}
    if resolving:
        chosen["deletes"] = form.deletes
    return replace(target, **chosen)


def _check_name(name: str, place: str) -> None:
    if "." not in name or not all(name.split(".")):
        raise SpecError(f"target.{place} is {name!r}.", hint='It must be "namespace.name".')
    if is_side_table(name):
        raise SpecError(f"target.{place} is {name!r}, a name of lakecdc's own tables.", hint="Use another name.")


def _check(target: Target) -> None:
    for mistakes in (_source_mistakes, _audit_mistakes, _setting_mistakes, merge_mistakes, feed_mistakes):
        for message, hint in mistakes(target):
            raise SpecError(message, table=target.table, hint=hint)
    if target.freshness is not None:
        fields.parse_duration(target.freshness, f"freshness of {target.table}")
    check_transforms(target.partition_by, "partition_by", target.table)
    check_transforms(target.history_partition_by, "history_partition_by", target.table)


def _setting_mistakes(target: Target) -> Iterator[tuple[str, str | None]]:
    for column in sorted(set(target.key) & set(target.exclude_columns)):
        yield f"The key column {column!r} is also excluded.", None
    if target.fold_case and target.exclude_columns:
        reason = "quarantined messages keep the original names of columns"
        yield f"fold_case and exclude_columns are both set, but {reason}.", "Exclude columns with clean.select."
    if target.history_table and not target.keyed:
        hint = "Remove it: history tables are for modes upsert, merge and auto."
        yield f"A target of mode {target.mode!r} has a history_table.", hint
    if target.history_partition_by and not target.history_table:
        yield "history_partition_by is set without a history_table.", None
    if target.merge_mode and target.mode not in ("merge", "auto"):
        yield (
            f"merge_mode is set, but mode {target.mode!r} never merges.",
            "Use mode merge or auto, or remove merge_mode.",
        )
    version = target.properties.get("format-version", "")
    refusal = equality_refusal(int(version)) if version.isdigit() else None
    if refusal and target.form.deletes == "equality":
        yield refusal
    if target.deletes == "resolved" and target.mode not in _RESOLVING:
        yield (
            f"deletes is 'resolved', but mode {target.mode!r} writes no equality deletes.",
            "Use mode upsert or auto, or remove deletes.",
        )


def _audit_mistakes(target: Target) -> Iterator[tuple[str, str | None]]:
    has_checks = bool(target.checks or target.table_checks)
    if target.publish is None and has_checks:
        yield "It has checks, but publish is not set.", 'Add "publish": "audited".'
    if target.publish is not None and not has_checks:
        yield "publish is 'audited', but there are no checks.", "Add checks."
    if target.publish is not None and target.mode in ("merge", "auto"):
        yield (
            "publish is 'audited', but a MERGE publishes a batch as it writes it, before it can be checked.",
            "Use mode upsert, append or history, or job check_tables.",
        )
    for check in target.checks:
        if check.is_of_table:
            yield f"The check {check.title} needs more than a batch.", "Put it into table_checks."


def _source_mistakes(target: Target) -> Iterator[tuple[str, str | None]]:
    for name in (target.table, target.history_table or ""):
        try:
            name.format(schema="s", table="t")
        except (KeyError, IndexError, ValueError):
            yield f"target names {name!r}.", "Only {schema} and {table} are replaced."
    for pattern in (*target.source_tables, *target.exclude_source_tables):
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"The regular expression {pattern!r} is wrong: {error}.", None
    if target.is_pattern and ("{table}" not in target.table or not target.source_tables):
        hint = 'A pattern contains "{table}" and needs source_tables, such as ["shop\\..*"].'
        yield f"target.table is {target.table!r}.", hint
    if target.is_pattern and target.history_table and "{table}" not in target.history_table:
        yield "Many tables would share one history_table.", 'Put "{table}" in its name as well.'
    if target.source_table and target.source_tables:
        yield "source_table and source_tables are both set.", None
    if target.exclude_source_tables and not target.source_tables:
        yield "exclude_source_tables is set without source_tables.", None
    if target.source_column and (target.is_pattern or not target.source_tables):
        yield "source_column is for shards, which need source_tables.", None


def check_transforms(transforms: Sequence[str], key: str, table: str) -> None:
    """Raise a :class:`SpecError` for a wrong partition transform in the setting ``key`` of a target."""
    for transform in transforms:
        if not _TRANSFORM.fullmatch(transform):
            raise SpecError(
                f"target.{key} has {transform!r}, which is not a partition transform.",
                table=table,
                hint="Use a column, bucket(8, column), truncate(4, column), or years, months, days or hours(column); "
                "put a name with blanks or signs in backticks.",
            )
