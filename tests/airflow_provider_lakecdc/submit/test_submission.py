"""Options and tables after rendering templates."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_lakecdc.submit.submission import table_list, typed_options


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("a.b", ["a.b"]),
        ("a.b, a.c,", ["a.b", "a.c"]),
        ("['a.b', 'a.c']", ["a.b", "a.c"]),
        ('["a.b"]', ["a.b"]),
        (("a.b",), ["a.b"]),
        ("", []),
    ],
)
def test_rendered_tables_become_a_list(text: Any, tables: list[str]) -> None:
    assert table_list(text) == tables


@pytest.mark.parametrize(
    ("job", "option", "text", "value"),
    [
        ("expire_snapshots", "retain_last", "7", 7),
        ("expire_snapshots", "max_age", "3600.5", 3600.5),
        ("expire_snapshots", "dry_run", "False", False),
        ("expire_snapshots", "older_than", "2026-01-01", "2026-01-01"),
        ("sort_data_files", "columns", "id, ts", ["id", "ts"]),
        ("rewrite_delete_files", "position_deletes", "keep", "keep"),
        # the contract refuses it, with its own message
        ("expire_snapshots", "retain_last", "seven", "seven"),
        ("expire_snapshots", "no_such_option", "1", "1"),
    ],
)
def test_rendered_text_becomes_the_type_of_the_option(job: str, option: str, text: str, value: Any) -> None:
    assert typed_options(job, {option: text})[option] == value
