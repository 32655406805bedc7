"""Storage and cleanup of the specs and reports of task tries: one folder per try."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Context, ObjectStoragePath
from fsspec.core import url_to_fs

from lakecdc.contract.errors import SpecError
from lakecdc.contract.report import JobReport, now, parse_report
from lakecdc.contract.spec import JobSpec, loads, parse_spec

#: seconds; running jobs and the steps after them need their documents
YOUNGEST_DOCUMENT = 24 * 3600.0
_NAME = re.compile(r"(spec|report|application|assessment|plan)\.json\Z|findings-[\w.=~-]+\.jsonl\Z")
_TRY = re.compile(r"try-\d+\Z")
# names of the last-modified time in fsspec file systems
_WRITTEN = ("mtime", "LastModified", "last_modified", "updated")


@dataclass(frozen=True)
class Documents:
    """The documents of one try: spec, report, and the id of their application.

    Every try has its own folder, so that a late report of an earlier try is never mistaken for the current one's.

    :param folder: a URI without a trailing slash; ``connection_id@`` may precede the host.
    """

    folder: str

    @classmethod
    def of_try(cls, base: str, context: Context | None) -> Documents:
        """Return the documents of the running try below a folder of all; without a context those of a preview."""
        base = base.rstrip("/")
        if context is None:
            return cls(f"{base}/preview")
        ti = context["ti"]
        mapped = [] if ti.map_index is None or ti.map_index < 0 else [str(ti.map_index)]
        parts = [ti.dag_id, ti.run_id, ti.task_id, *mapped, f"try-{ti.try_number}"]
        return cls("/".join([base, *map(_safe, parts)]))

    @property
    def spec_uri(self) -> str:
        """Return the URI of the spec, for the job."""
        return without_connection(f"{self.folder}/spec.json")

    @property
    def report_uri(self) -> str:
        """Return the URI of the report, for the job."""
        return without_connection(f"{self.folder}/report.json")

    def write_spec(self, text: str) -> None:
        """Write the spec, and remove the report of an earlier run of the same name (``dag.test`` reuses names)."""
        self.write("spec.json", text)
        (ObjectStoragePath(self.folder) / "report.json").unlink(missing_ok=True)

    def read_spec(self) -> JobSpec:
        """Read the spec back."""
        return parse_spec(read_document(f"{self.folder}/spec.json"))

    def write_application(self) -> None:
        """Record a new application; a try that resumes another's application keeps its record."""
        self.write("application.json", json.dumps({"id": str(uuid.uuid4()), "at": now()}))

    def read_application(self) -> dict[str, str]:
        """Read the application recorded last: ``id``, assigned before Spark names it, and ``at``, its submission."""
        application: dict[str, str] = read_document(f"{self.folder}/application.json")
        return application

    def write_report(self, report: JobReport) -> None:
        """Write a report of tables that need no Spark application, perhaps merged with an application's."""
        self.write("report.json", report.to_json())

    def write(self, name: str, text: str) -> str:
        """Write another document of the try and return its URI for :func:`read_document`."""
        folder = ObjectStoragePath(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        return f"{self.folder}/{name}"

    def read_report(self) -> JobReport | None:
        """Read the report; None if it is missing or cannot be parsed."""
        try:
            return parse_report(read_document(f"{self.folder}/report.json"))
        except (FileNotFoundError, SpecError):
            # no report, or the job died while writing
            return None


def read_document(uri: str) -> Any:
    """Read and decode a document of :meth:`Documents.write`.

    :raises SpecError: it is not JSON.
    """
    return loads(ObjectStoragePath(uri).read_text())


def without_connection(uri: str) -> str:
    """Remove Airflow's connection id from a URI, as jobs cannot use it."""
    return re.sub(r"^([\w+.-]+://)[^/@]+@", r"\1", uri)


def _safe(part: str) -> str:
    """Convert an id to a unique folder name.

    Run ids contain colons and plus signs, which some stores and URI parsers reject, and may be ``..``.
    """
    name = re.sub(r"[^\w.=-]+", "_", part)
    if name == part and name.strip("."):
        return name
    # unchanged ids have no tilde
    return f"{name}~{hashlib.sha256(part.encode()).hexdigest()[:12]}"


@dataclass
class Removal:
    """Counts of removed documents and of retained newer ones."""

    documents: int = 0
    bytes: int = 0
    retained: int = 0


def remove_documents(base: str, before: datetime, *, dry_run: bool = False) -> Removal:
    """Remove the documents of all tries whose newest document is older than a time.

    Only files with the name and place of a try's document are removed.

    :param base: folder of all documents, a URI.
    :param dry_run: only count.
    """
    path, removal = ObjectStoragePath(base), Removal()
    # with the Airflow connection in the URI, if any
    fs, root = (path.fs, path.path) if path.conn_id else url_to_fs(base)
    if not fs.exists(root):
        return removal
    # one DAG at a time, to bound the size of listings
    for dag in [info["name"].rstrip("/") for info in fs.ls(root, detail=True) if info["type"] == "directory"]:
        for folder, documents in _tries(fs, dag).items():
            if max(_modified_at(fs, name, info) for name, info in documents.items()) >= before:
                removal.retained += len(documents)
                continue
            removal.documents += len(documents)
            removal.bytes += sum(int(info.get("size") or 0) for info in documents.values())
            if not dry_run:
                _remove(fs, folder, documents, dag)
    return removal


def _tries(fs: Any, dag: str) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return the documents of a DAG's tries by folder."""
    by_folder: dict[str, dict[str, Mapping[str, Any]]] = {}
    for path, info in fs.find(dag, detail=True).items():
        folder, _, name = path.rpartition("/")
        if _NAME.match(name) and _TRY.match(folder.rpartition("/")[2]):
            by_folder.setdefault(folder, {})[path] = info
    return by_folder


def _modified_at(fs: Any, path: str, info: Mapping[str, Any]) -> datetime:
    modified = next((info[name] for name in _WRITTEN if info.get(name) is not None), None)
    if modified is None:
        modified = fs.modified(path)
    if isinstance(modified, int | float):
        return datetime.fromtimestamp(modified, UTC)
    moment = datetime.fromisoformat(modified) if isinstance(modified, str) else modified
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _remove(fs: Any, folder: str, documents: Mapping[str, Any], top: str) -> None:
    """Remove a try's documents, and then its empty folders if the store has folders."""
    for path in documents:
        # a concurrent cleanup may have removed it
        with suppress(FileNotFoundError):
            fs.rm_file(path)
    if "file" not in (fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)):
        return
    with suppress(OSError):
        while folder.startswith(top):
            fs.rmdir(folder)
            folder = folder.rpartition("/")[0]
