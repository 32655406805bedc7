"""The whole demo."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from rich.console import Console

from demo import environment, report
from demo.compare import compare, place_of
from demo.dags import DagRun, DagRunner, DemoError
from demo.expected import export
from demo.jvm import FastStart
from demo.measure import measure
from demo.progress import Progress
from demo.settings import BUCKET, Settings, shown
from demo.shop import TABLES
from demo.source import Source
from demo.web import web_page
from demo.workload import Workload
from local_services import install
from local_services.s3 import S3Server


class Demo:
    """One run of the demo."""

    def __init__(self, settings: Settings, console: Console) -> None:
        self.settings = settings
        self.console = console
        # Postgres, Airflow, first rows, full load; an hour is work and ingest; two governed rounds, two measurements,
        # two comparisons; the S3 server
        steps = 4 + bool(settings.s3) + 2 * settings.hours + len(settings.governed_hours) + 2 + 2 + 2
        self.progress = Progress(console, steps)
        self.workload = Workload(settings.seed, settings.rows, settings.hours)
        self.source: Source | None = None

    def run(self, ui: bool = False) -> bool:
        """Run everything and return whether every table equals its source.

        :param ui: keep Airflow's web page up until the user interrupts.
        :raises DemoError: a step failed.
        """
        self._start_clean()
        with ExitStack() as stack:
            if self.settings.s3:
                stack.callback(self.settings.s3.stop)
                self._start_s3(self.settings.s3)
            self.source = source = Source(self.settings)
            stack.callback(source.stop)
            variables = self._start()
            with DagRunner(self.settings, variables) as runner:
                result = self._story(runner)
            report.show(self.console, result)
            if ui:
                self._show_page(variables)
        self._print_places()
        return bool(result["equal_to_source"])

    def _start_clean(self) -> None:
        folder = self.settings.folder
        if folder.exists():
            shutil.rmtree(folder)
        self.settings.logs.mkdir(parents=True)
        settings = f"seed {self.settings.seed}, {self.settings.rows:,} rows, {self.settings.hours} hours"
        self.console.print(f"{settings}, everything in {shown(folder)}", markup=False, highlight=False, soft_wrap=True)

    def _start_s3(self, server: S3Server) -> None:
        with self.progress.step("start the S3 server") as facts:
            install.install_packages(install.missing_for_s3())
            install.install_s3_server()
            server.start()
            server.create_bucket(BUCKET)
            facts.append(f"port {server.port}, the bucket {BUCKET}, and no catalog service")

    def _start(self) -> dict[str, str]:
        assert self.source is not None
        with self.progress.step("start Postgres") as facts:
            self.source.start()
            facts.append(f"port {self.source.postgres.port}")
            if self.source.moved:
                facts.append(f"its data is in {self.source.moved} for now, as its account may not enter the checkout")
        with self.progress.step("make the shop's tables") as facts:
            facts.append(f"{self.source.fill(self.workload):,} rows in {len(TABLES)} tables")
        variables = environment.variables(self.settings, self.source.postgres.port)
        with self.progress.step("make Airflow's database"):
            try:
                environment.prepare(self.settings, variables)
            except subprocess.CalledProcessError as error:
                raise DemoError(
                    "Airflow cannot create its database.", environment.migrate_log(self.settings)
                ) from error
        return variables

    def _story(self, runner: DagRunner) -> dict[str, Any]:
        with self.progress.step("full load of all tables") as facts:
            facts.append(f"{runner.run('ingest', 0).total('rows_written'):,} rows")
        fast_start = FastStart(self.settings)
        fast_start.use()
        for hour in range(1, self.settings.hours + 1):
            self._hour(runner, hour)
        before = self._measure("before governance")
        self._govern(runner, "hourly_governance", self.settings.hours, minute=30)
        self._govern(runner, "nightly_governance", 26)
        after = self._measure("after governance")
        with self.progress.step("reconcile with the source, row by row") as facts:
            reconciled = runner.run("reconcile", 27)
            facts.append(_reconciled(reconciled))
        fast_start.forget()
        with self.progress.step("compare once more, in DuckDB"):
            comparisons = {table.full_name: self._compare(table) for table in TABLES}
        tables = reconciled.reports["reconcile"]
        result = report.build(self.settings, self.progress.seconds, (before, after), comparisons, tables)
        report.write(self.settings, result)
        return result

    def _hour(self, runner: DagRunner, number: int) -> None:
        assert self.source is not None
        hour = self.workload.hour(number)
        with self.progress.step(f"hour {number}: the shop works") as facts:
            self.source.work(hour)
            facts.extend([f"{hour.changes:,} changes in {len(hour.transactions)} transactions", *hour.news])
        with self.progress.step(f"hour {number}: ingest") as facts:
            facts.append(_ingested(runner.run("ingest", number)))
        if number in self.settings.governed_hours:
            self._govern(runner, "hourly_governance", number, minute=30)

    def _govern(self, runner: DagRunner, dag: str, hour: int, minute: int = 0) -> None:
        with self.progress.step(f"{dag.replace('_', ' ')} at {hour % 24:02}:{minute:02}") as facts:
            facts.extend(_outcomes(runner.run(dag, hour, minute)))

    def _measure(self, when: str) -> dict[str, Any]:
        with self.progress.step(f"measure {when}"):
            return measure(self.settings, f"measure-{when.replace(' ', '-')}")

    def _compare(self, table: Any) -> Any:
        assert self.source is not None
        export(self.source, table, self.settings.expected)
        return compare(place_of(self.settings, table.full_name), self.settings.expected / f"{table.name}.parquet")

    def _show_page(self, variables: dict[str, str]) -> None:
        assert self.source is not None
        with web_page(self.settings, variables) as page:
            user, password = page.login
            lines = (
                f"Airflow: {page.address}  user {user}  password {password}",
                f"Postgres: {self.source.postgres.uri}",
                "Ctrl-C ends both.",
            )
            for line in lines:
                self.console.print(line, markup=False, highlight=False, soft_wrap=True)
            try:
                page.wait()
            except KeyboardInterrupt:
                self.console.print("stopping", highlight=False)

    def _print_places(self) -> None:
        places: tuple[tuple[str, Any], ...] = (
            ("report", self.settings.report),
            ("tables", self.settings.warehouse),
            *(() if self.settings.s3 else (("catalog", self.settings.catalog_file),)),
            ("what the source holds", self.settings.expected),
            ("Postgres' data", self.settings.postgres_data),
            ("logs", self.settings.logs),
        )
        for name, place in places:
            self.console.print(f"{name + ':':24}{shown(place)}", markup=False, highlight=False, soft_wrap=True)


def run(settings: Settings, console: Console, ui: bool = False) -> int:
    """Run the demo and return the exit code: 0 if every table equals its source, else 1."""
    try:
        with _lock(settings):
            return 0 if Demo(settings, console).run(ui) else 1
    except DemoError as error:
        console.print(f"{error}\nlast lines of {shown(error.log)}:\n{error.excerpt()}", markup=False, highlight=False)
        return 1


@contextmanager
def _lock(settings: Settings) -> Iterator[None]:
    """Prevent a second demo from emptying the folder of the first, which may still serve its web page."""
    settings.folder.parent.mkdir(parents=True, exist_ok=True)
    lock = settings.folder.with_name(f"{settings.folder.name}.lock")
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"Another demo uses {settings.folder}. Stop it, or set DEMO_FOLDER.") from None
        yield


def _ingested(run: DagRun) -> str:
    looked_up = run.total("completions")
    return f"{run.total('keys'):,} keys, {run.total('delete_files')} delete files, {looked_up} TOAST look-ups"


def _reconciled(run: DagRun) -> str:
    differ = [str(table["reason"]) for table in run.reports["reconcile"].values() if table["outcome"] != "nothing"]
    return "; ".join(differ) or f"{run.total('rows_table'):,} rows, none differs"


def _outcomes(run: DagRun) -> list[str]:
    return [
        f"{task} {'/'.join(sorted({str(table.get('outcome')) for table in tables.values()}))}"
        for task, tables in run.reports.items()
        if tables
    ]
