"""Derive the columns of a target, and their encodings in the messages of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Target
from lakecdc.iceberg.widening import holds, is_wider, no_change
from lakecdc.ingest.change import Column
from lakecdc.ingest.engine.message_facts import MessageFacts
from lakecdc.ingest.formats.values import Field
from lakecdc.sql import canonical


def fields_of(target: Target, seen: tuple[Field, ...], known: Mapping[str, str]) -> tuple[Field, ...]:
    """Return columns with their types: the target's override, else the table's, else the derived one.

    :raises InputError: a key column is missing.
    """
    chosen = target_fields(seen, target)
    absent = [Field(k, known[k]) for k in target.key if k in known and k not in {f.name for f in chosen}]
    overridden = [Field(k, target.columns[k]) for k in target.key if k in target.columns]
    names = {f.name for f in (*chosen, *absent)}
    fields = [*chosen, *absent, *(f for f in overridden if f.name not in names)]
    missing = sorted(set(target.key) - {f.name for f in fields})
    if missing:
        alike = sorted(name for name in names if name.lower() in {key.lower() for key in missing})
        case = f"They have {', '.join(alike)}, and names are case-sensitive unless the target has fold_case."
        raise InputError(
            f"The key columns {missing} are not in the events.", table=target.table, hint=case if alike else None
        )
    return tuple(typed_field(f, target, known) for f in fields)


def target_fields(seen: tuple[Field, ...], target: Target) -> list[Field]:
    """Return the target's columns, with its column for the source table's name."""
    chosen = [f for f in seen if f.name not in target.exclude_columns]
    if target.source_column:
        return [*(f for f in chosen if f.name != target.source_column), Field(target.source_column, "string")]
    return chosen


def typed_field(field: Field, target: Target, known: Mapping[str, str]) -> Field:
    """Return a column with its type and encoding: the target's override, else the table's type, else its own."""
    encoding = target.encodings.get(field.name)
    sql_type = target.columns.get(field.name) or known.get(field.name) or field.type
    typed = field.with_type(sql_type)
    return typed.with_encoding(encoding) if encoding else typed


def followed(known: Mapping[str, str], schema_fields: Iterable[Field], target: Target) -> dict[str, str]:
    """Return a table's types after a batch, widened like the source's.

    :param known: Spark SQL types of the table's columns.
    :param schema_fields: columns of the batch's schemas.
    :raises InputError: Iceberg cannot change a column's type as the source did.
    """
    types = dict(known)
    for field in schema_fields:
        name, sql_type = field.name, known.get(field.name)
        if sql_type is None or name in target.columns or name in target.exclude_columns:
            continue
        if is_wider(types[name], field.type):
            types[name] = field.type
        elif not holds(types[name], field.type):
            raise no_change(target.table, name, sql_type, field.type)
    return types


def encodings_of(
    fields: Sequence[Field], schemas: Mapping[str, tuple[Field, ...]], target: Target, known: Mapping[str, str]
) -> dict[str, dict[str, Field]]:
    """Return the columns that schemas encode differently, such as decimals with a changed scale.

    :param schemas: columns by the text of each schema.
    :return: encodings by column and text of the schema.
    """
    by_name = {f.name: f for f in fields}
    encodings: dict[str, dict[str, Field]] = {}
    for text, seen in schemas.items():
        for other in (f for f in seen if f.name in by_name):
            field = by_name[other.name]
            typed = replace(typed_field(other, target, known), type=field.type)
            if typed != field:
                encodings.setdefault(other.name, {})[text] = typed
    return encodings


def message_key(target: Target, mine: Sequence[MessageFacts], known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the key columns named in the messages or their keys.

    :param known: the table's key columns, used if no message has a key.
    :raises InputError: the table needs a key and there is none.
    """
    if not target.keyed:
        return ()
    key_names = {names for s in mine for names in s.key_names}
    keys = key_names or {tuple(f.name for f in s.key) for s in mine if s.key} or ({known} if known else set())
    if len(keys) != 1:
        raise InputError(
            "The target has no key, and the messages have none.",
            table=target.table,
            hint='Add "key": ["column", …] to its target.',
        )
    return keys.pop()


def chosen_type(target: Target, column: str) -> str:
    """Return the type of one of a target's ``columns``, in the spelling of tables and files.

    :raises InputError: the type is unknown to Spark.
    """
    given = target.columns[column]
    try:
        return canonical(given)
    except Exception as error:
        raise InputError(
            f"columns gives {column!r} the type {given!r}, which Spark does not know.", table=target.table
        ) from error


def key_columns(target: Target) -> tuple[Column, ...]:
    """Return the key columns of a target without events."""
    return tuple(Column(k, target.columns.get(k, "string")) for k in target.key)
