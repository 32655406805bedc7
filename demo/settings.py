"""Settings of a demo run, from the environment, and the places of its files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lakecdc.contract.runtime import OBJECT_STORE
from local_services.s3 import S3Server

REPOSITORY = Path(__file__).resolve().parent.parent
#: name of the catalog, of its Airflow connection, of the source's schema and of the namespace in the lake
CATALOG = "lake"
SHOP = "shop"
#: bucket of the object store
BUCKET = "demo"
_CATALOGS = ("sqlite", OBJECT_STORE)
_SMALLEST = 100


@dataclass(frozen=True)
class Settings:
    """Settings of a demo run.

    :param seed: seed of the workload; the same seed creates the same statements (``DEMO_SEED``).
    :param rows: initial rows at the source (``DEMO_ROWS``).
    :param hours: hours of workload (``DEMO_HOURS``).
    :param folder: folder of all files (``DEMO_FOLDER``), emptied at the start.
    :param catalog: where tables are (``DEMO_CATALOG``): ``sqlite``, a folder and a SQLite catalog, or ``object_store``,
        an S3 server alone.
    """

    seed: int = 42
    rows: int = 200_000
    hours: int = 6
    folder: Path = REPOSITORY / "build" / "demo"
    catalog: str = "sqlite"

    def __post_init__(self) -> None:
        if self.rows < _SMALLEST or self.hours < 1:
            raise ValueError(f"The demo needs at least {_SMALLEST} rows (DEMO_ROWS) and 1 hour (DEMO_HOURS).")
        if self.catalog not in _CATALOGS:
            raise ValueError(f"DEMO_CATALOG must be one of {', '.join(_CATALOGS)}, got {self.catalog!r}.")

    @cached_property
    def s3(self) -> S3Server | None:
        """Return the server of the object store; None with another catalog."""
        return S3Server(self.folder / "buckets") if self.catalog == OBJECT_STORE else None

    @property
    def warehouse(self) -> Path:
        """Return the folder of the tables' files."""
        return self.s3.folder / BUCKET / "lake" if self.s3 else self.folder / "warehouse"

    @property
    def catalog_file(self) -> Path:
        """Return the SQLite file of the catalog."""
        return self.folder / "catalog.db"

    @property
    def catalog_properties(self) -> dict[str, str]:
        """Return the catalog's pyiceberg properties."""
        if self.s3:
            # readers other than ours locate a table by its path
            place = {"warehouse": f"s3://{BUCKET}/lake", "readable_paths": "true"}
            return {"type": OBJECT_STORE, **place, **self.s3.properties}
        return {"type": "sql", "uri": f"sqlite:///{self.catalog_file}", "warehouse": f"file://{self.warehouse}"}

    @property
    def expected(self) -> Path:
        """Return the folder of the source's final state, a Parquet file per table."""
        return self.folder / "expected"

    @property
    def logs(self) -> Path:
        """Return the folder of Airflow's and Spark's logs."""
        return self.folder / "logs"

    @property
    def airflow_home(self) -> Path:
        """Return Airflow's home, with its database."""
        return self.folder / "airflow"

    @property
    def postgres_data(self) -> Path:
        """Return the place of Postgres' data folder after the run."""
        return self.folder / "postgres"

    @property
    def report(self) -> Path:
        """Return the file of the JSON report."""
        return self.folder / "report.json"

    @property
    def governed_hours(self) -> range:
        """Return the hours followed by hourly governance; the others are not governed, so that debt builds up."""
        return range(1, self.hours // 3 + 1)


def shown(path: Path) -> str:
    """Format a path as the user would type it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings.

    :raises ValueError: one of them is not a number or is too small.
    """
    given = {name: environment[f"DEMO_{name.upper()}"] for name in _NUMBERS if environment.get(f"DEMO_{name.upper()}")}
    folder = Path(environment.get("DEMO_FOLDER") or Settings.folder).absolute()
    catalog = environment.get("DEMO_CATALOG") or Settings.catalog
    return Settings(**{name: _number(name, text) for name, text in given.items()}, folder=folder, catalog=catalog)


_NUMBERS = ("seed", "rows", "hours")


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"DEMO_{name.upper()} must be a whole number, got {text!r}.") from None
