"""The columns of a target, and how the messages of a batch write them."""

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

    :raises InputError: if a key column is missing.
    """
    wanted = wanted_fields(seen, target)
    absent = [Field(k, known[k]) for k in target.key if k in known and k not in {f.name for f in wanted}]
    overridden = [Field(k, target.columns[k]) for k in target.key if k in target.columns]
    names = {f.name for f in (*wanted, *absent)}
    fields = [*wanted, *absent, *(f for f in overridden if f.name not in names)]
    missing = sorted(set(target.key) - {f.name for f in fields})
    if missing:
        alike = sorted(name for name in names if name.lower() in {key.lower() for key in missing})
        raise InputError(
            f"The key columns {missing} are not in the events.",
            table=target.table,
            hint=f"They have {', '.join(alike)}, and case counts unless the target has fold_case." if alike else None,
        )
    return tuple(typed_field(f, target, known) for f in fields)


def wanted_fields(seen: tuple[Field, ...], target: Target) -> list[Field]:
    """Return the columns that a target takes, and its own for the source table's name."""
    wanted = [f for f in seen if f.name not in target.exclude_columns]
    if target.source_column:
        return [*(f for f in wanted if f.name != target.source_column), Field(target.source_column, "string")]
    return wanted


def typed_field(field: Field, target: Target, known: Mapping[str, str]) -> Field:
    """Return a column with its type and encoding: the target's override, else the table's type, else its own."""
    encoding = target.encodings.get(field.name)
    sql_type = target.columns.get(field.name) or known.get(field.name) or field.type
    typed = field.with_type(sql_type)
    return typed.with_encoding(encoding) if encoding else typed


def followed(known: Mapping[str, str], told: Iterable[Field], target: Target) -> dict[str, str]:
    """Return a table's types after a batch, widened as its source has widened them.

    :param known: Spark SQL types of the table's columns.
    :param told: columns of the batch's schemas.
    :raises InputError: if Iceberg cannot change a column's type as the source has done.
    """
    types = dict(known)
    for field in told:
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
    """Return the columns that schemas write in different ways, such as decimals whose scale has changed.

    :param schemas: columns by the text of each schema.
    :return: how they are written, by column and the text of the schema.
    """
    wanted = {f.name: f for f in fields}
    found: dict[str, dict[str, Field]] = {}
    for text, seen in schemas.items():
        for other in (f for f in seen if f.name in wanted):
            field = wanted[other.name]
            typed = replace(typed_field(other, target, known), type=field.type)
            if typed != field:
                found.setdefault(other.name, {})[text] = typed
    return found


def message_key(target: Target, mine: Sequence[MessageFacts], known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the key columns as the messages, or their keys, tell them.

    :param known: those of the table, which serve where no message tells a key.
    :raises InputError: if a table that needs a key has none there.
    """
    if not target.keyed:
        return ()
    told = {names for s in mine for names in s.key_names}
    keys = told or {tuple(f.name for f in s.key) for s in mine if s.key} or ({known} if known else set())
    if len(keys) != 1:
        raise InputError(
            "No key is given, and the messages do not tell one.",
            table=target.table,
            hint='Add "key": ["column", …] to its target.',
        )
    return keys.pop()


def chosen_type(target: Target, column: str) -> str:
    """Return the type that a target gives one of its ``columns``, in the spelling of tables and files.

    :raises InputError: Spark knows no such type.
    """
    given = target.columns[column]
    try:
        return canonical(given)
    except Exception as error:
        raise InputError(
            f"columns gives {column!r} the type {given!r}, which Spark does not know.", table=target.table
        ) from error


def key_columns(target: Target) -> tuple[Column, ...]:
    """Return the key columns of a target for which there are no events."""
    return tuple(Column(k, target.columns.get(k, "string")) for k in target.key)
