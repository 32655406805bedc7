"""Operators that tests make, and what they hand to spark-submit."""

from __future__ import annotations

from typing import Any

from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator


def rewrite(*tables: str, **arguments: Any) -> RewriteDeleteFilesOperator:
    """An operator over some tables of the test's catalog."""
    defaults = {"task_id": "t", "catalog_conn_id": "lake", "tables": list(tables) or ["shop.orders"]}
    return RewriteDeleteFilesOperator(**{**defaults, **arguments})


def option(arguments: list[str], name: str) -> str:
    """The value after an argument of spark-submit."""
    return arguments[arguments.index(name) + 1]
