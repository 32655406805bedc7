"""Make operators for tests and read their spark-submit arguments."""

from __future__ import annotations

from typing import Any

from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator


def rewrite(*tables: str, **arguments: Any) -> RewriteDeleteFilesOperator:
    """Return an operator over some tables of the test's catalog."""
    defaults = {"task_id": "t", "catalog_conn_id": "lake", "tables": list(tables) or ["shop.orders"]}
    return RewriteDeleteFilesOperator(**{**defaults, **arguments})


def option(arguments: list[str], name: str) -> str:
    """Return the value after an argument of spark-submit."""
    return arguments[arguments.index(name) + 1]
