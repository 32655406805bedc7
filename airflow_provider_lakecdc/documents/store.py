"""Where a try's spec and report lie, and how the Airflow side reads and writes them."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import ObjectStoragePath

from lakecdc.contract.errors import SpecError
from lakecdc.contract.report import JobReport, now, parse_report
from lakecdc.contract.spec import JobSpec, loads, parse_spec

if TYPE_CHECKING:
    from airflow.sdk import Context


@dataclass(frozen=True)
class Submitted:
    """The Spark application that a try has submitted.

    :param id: unique, also before Spark has a name for it.
    :param at: ISO-8601 moment.
    """

    id: str
    at: str


@dataclass(frozen=True)
class Documents:
    """The documents of one try: spec, report, and which application these are of.

    Every try has its own folder: a report that an earlier try, perhaps still alive, writes late is never taken for
    this one's.

    :param folder: a URI without a slash at its end; ``connection_id@`` may stand before the host.
    """

    folder: str

    @classmethod
    def of_try(cls, base: str, context: Context | None) -> Documents:
        """The folder of the try that runs, below ``base``.

        :param base: folder of all documents, a URI.
        :param context: the task's context; without one the folder is called ``preview``.
        """
        base = base.rstrip("/")
        if context is None:
            return cls(f"{base}/preview")
        ti = context["ti"]
        mapped = [] if ti.map_index is None or ti.map_index < 0 else [str(ti.map_index)]
        parts = [ti.dag_id, ti.run_id, ti.task_id, *mapped, f"try-{ti.try_number}"]
        return cls("/".join([base, *map(_safe, parts)]))

    @property
    def spec_uri(self) -> str:
        """Where the job reads its spec."""
        return without_connection(f"{self.folder}/spec.json")

    @property
    def report_uri(self) -> str:
        """Where the job leaves its report."""
        return without_connection(f"{self.folder}/report.json")

    def write_spec(self, text: str) -> None:
        """Write the spec, and remove a report of an earlier run under the same name (``dag.test`` repeats them)."""
        folder = ObjectStoragePath(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.json").write_text(text)
        (folder / "report.json").unlink(missing_ok=True)

    def read_spec(self) -> JobSpec:
        """The spec that was written last."""
        return parse_spec(read_document(f"{self.folder}/spec.json"))

    def write_application(self) -> None:
        """Note that an application is submitted; one that another try takes over remains the same."""
        found = {"id": str(uuid.uuid4()), "at": now()}
        (ObjectStoragePath(self.folder) / "application.json").write_text(json.dumps(found))

    def read_application(self) -> Submitted:
        """The application that was submitted last with these documents."""
        return Submitted(**json.loads((ObjectStoragePath(self.folder) / "application.json").read_text()))

    def write_report(self, report: JobReport) -> None:
        """Write the report of what no Spark application was needed for, perhaps besides what one has reported."""
        (ObjectStoragePath(self.folder) / "report.json").write_text(report.to_json())

    def write(self, name: str, text: str) -> str:
        """Write another document of the try; the URI by which :func:`read_document` finds it.

        :param name: of the file.
        """
        folder = ObjectStoragePath(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        return f"{self.folder}/{name}"

    def read_report(self) -> JobReport | None:
        """The report, or None if the job left none or none that can be read."""
        path = ObjectStoragePath(self.folder) / "report.json"
        if not path.exists():
            return None
        try:
            document: Any = loads(path.read_text())
            return parse_report(document)
        except SpecError:
            # half a report means that the job died while it wrote: the same as none
            return None


def read_document(uri: str) -> Any:
    """What :meth:`Documents.write` has written, decoded.

    :raises SpecError: it is no JSON.
    """
    return loads(ObjectStoragePath(uri).read_text())


def without_connection(uri: str) -> str:
    """The URI as the job sees it: Airflow's connection id means nothing to it."""
    return re.sub(r"^([\w+.-]+://)[^/@]+@", r"\1", uri)


def _safe(part: str) -> str:
    """Return a name of one folder for an id, another one for each id.

    Run ids hold colons and plus signs, which some stores and URI parsers take amiss, and may be ``..``.
    """
    name = re.sub(r"[^\w.=-]+", "_", part)
    if name == part and name.strip("."):
        return name
    # no id that stays as it is has a tilde
    return f"{name}~{hashlib.sha256(part.encode()).hexdigest()[:12]}"
