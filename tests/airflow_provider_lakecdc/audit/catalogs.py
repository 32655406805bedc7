"""Catalogs on SQLite that lose answers or never answer; pyiceberg loads them by ``py-catalog-impl``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection


def of_class(catalog: CatalogConnection, kind: type[SqlCatalog]) -> CatalogConnection:
    """Return the same catalog, accessed through another class."""
    implementation = {"py-catalog-impl": f"{kind.__module__}.{kind.__name__}"}
    return replace(catalog, properties={**without_type(catalog), **implementation})


def without_type(catalog: CatalogConnection) -> dict[str, Any]:
    """Return a catalog's properties without its type, which excludes a class."""
    return {name: value for name, value in catalog.properties.items() if name != "type"}


class Refusing(SqlCatalog):
    """A catalog that commits everything, but a middleman repeats each commit, which is refused."""

    def commit_table(self, *arguments: Any) -> Any:
        super().commit_table(*arguments)
        raise CommitFailedException("The branch main has changed.")


class Silent(SqlCatalog):
    """A catalog that commits everything and loses the answer."""

    def commit_table(self, *arguments: Any) -> Any:
        super().commit_table(*arguments)
        raise CommitStateUnknownException("504 Gateway Timeout")


class Late(SqlCatalog):
    """A catalog that delays commits until the test runs them."""

    delayed: ClassVar[list[Callable[[], Any]]] = []

    def commit_table(self, *arguments: Any) -> Any:
        self.delayed.append(lambda: super(Late, self).commit_table(*arguments))
        raise CommitStateUnknownException("504 Gateway Timeout")


class Hanging(SqlCatalog):
    """A catalog that does not answer until the test ends."""

    over: ClassVar[threading.Event] = threading.Event()

    def load_table(self, identifier: Any) -> Any:
        self.over.wait()
        return super().load_table(identifier)
