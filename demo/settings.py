"""What the environment says about one run of the demo, and where it leaves its things."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
#: name of the catalog, of its Airflow connection, and of the schema at the source and the namespace in the lake
CATALOG = "lake"
SHOP = "shop"
_SMALLEST = 100


@dataclass(frozen=True)
class Settings:
    """One run of the demo.

    :param seed: seed of the workload; the same seed makes the same statements (``DEMO_SEED``).
    :param rows: rows at the source before the first interval (``DEMO_ROWS``).
    :param hours: intervals of workload (``DEMO_HOURS``).
    :param folder: where everything is left (``DEMO_FOLDER``); emptied at the start.
    """

    seed: int = 42
    rows: int = 200_000
    hours: int = 6
    folder: Path = REPOSITORY / "build" / "demo"

    def __post_init__(self) -> None:
        if self.rows < _SMALLEST or self.hours < 1:
            raise ValueError(f"The demo needs at least {_SMALLEST} rows (DEMO_ROWS) and 1 hour (DEMO_HOURS).")

    @property
    def warehouse(self) -> Path:
        """Folder of the tables' files."""
        return self.folder / "warehouse"

    @property
    def catalog_file(self) -> Path:
        """SQLite file of the catalog."""
        return self.folder / "catalog.db"

    @property
    def catalog_properties(self) -> dict[str, str]:
        """The catalog in pyiceberg's names."""
        return {"type": "sql", "uri": f"sqlite:///{self.catalog_file}", "warehouse": f"file://{self.warehouse}"}

    @property
    def expected(self) -> Path:
        """Folder of the source's last state, a Parquet file per table."""
        return self.folder / "expected"

    @property
    def logs(self) -> Path:
        """Folder of what Airflow and Spark say."""
        return self.folder / "logs"

    @property
    def airflow_home(self) -> Path:
        """Airflow's home, its database included."""
        return self.folder / "airflow"

    @property
    def postgres_data(self) -> Path:
        """Where Postgres' data folder is found after the run."""
        return self.folder / "postgres"

    @property
    def report(self) -> Path:
        """The report, JSON."""
        return self.folder / "report.json"

    @property
    def governed_hours(self) -> range:
        """Hours that hourly governance follows at once; after the others it stays away, so that debt builds up."""
        return range(1, self.hours // 3 + 1)


def shown(path: Path) -> str:
    """A path as the user would type it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings.

    :raises ValueError: if one of them is not a number or too small.
    """
    given = {name: environment[f"DEMO_{name.upper()}"] for name in _NUMBERS if environment.get(f"DEMO_{name.upper()}")}
    folder = Path(environment.get("DEMO_FOLDER") or Settings.folder).absolute()
    return Settings(**{name: _number(name, text) for name, text in given.items()}, folder=folder)


_NUMBERS = ("seed", "rows", "hours")


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"DEMO_{name.upper()} is {text!r}; it must be a whole number.") from None
