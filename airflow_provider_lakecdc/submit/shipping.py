"""The job script and library that are shipped to the cluster."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from airflow.sdk import ObjectStoragePath

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.submit.documents import without_connection
from airflow_provider_lakecdc.submit.submitter import Application

_LIBRARY = "lakecdc"
#: package of the scripts: beside the library in a checkout, inside it when installed; not part of the zip
_SCRIPTS = "jobs"
# a fixed timestamp (the oldest in a zip) makes builds reproducible
_EPOCH = (1980, 1, 1, 0, 0, 0)


def job_script(job: str) -> Path:
    """Return the path of a job's script without importing it, as it imports pyspark."""
    spec = importlib.util.find_spec(f"{_LIBRARY}.{_SCRIPTS}")
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))) / f"{job}.py"
    # a checkout on PYTHONPATH: the scripts are beside the library
    return _library_folder().parent / f"{job}.py"


def library_zip() -> Path:
    """Return the library as a zip for ``--py-files``, built once per state of its sources.

    Named ``.whl`` it is a wheel. It has only pure Python; native packages come from the cluster's image or a packed
    environment.
    """
    folder = _library_folder()
    sources = [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    sources = [path for path in sources if path.relative_to(folder).parts[0] != _SCRIPTS and path.suffix != ".pyc"]
    contents = {f"{_LIBRARY}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in sources}
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    version = f"0.{int(digest.hexdigest()[:12], 16)}"
    target = settings.cache_folder() / f"{_LIBRARY}-{version}-py3-none-any.zip"
    if not target.exists():
        _write_zip(target, {**contents, **_wheel_metadata(version, contents)})
    return target


def with_uris(application: Application, folder: str, library_suffix: str) -> tuple[Application, dict[str, Path]]:
    """Return the application with its local files in object storage, and the files to :func:`upload` by their URI.

    :param folder: URI of the folder of all documents; ``connection_id@`` may precede the host.
    :param library_suffix: of the job library's file, by which a platform recognizes it.
    :raises JobBadInputError: the folder is on this worker.
    """
    if folder.startswith(("file:", "/")):
        raise JobBadInputError(
            f"The driver runs on the platform and cannot read {folder}, a folder of this worker.",
            hint="Set [lakecdc] documents_uri, or the operator's documents_uri, to a bucket that both reach.",
        )
    uploads: dict[str, Path] = {}
    library = library_zip()

    def uri(file: str) -> str:
        if "://" in file:
            return file
        path = Path(file)
        name = path.with_suffix(library_suffix).name if path == library else path.name
        # the content's hash keeps the files of two versions of the library apart
        place = f"{folder}/packages/{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}/{name}"
        uploads[place] = path
        return without_connection(place)

    return replace(
        application,
        script=uri(application.script),
        py_files=tuple(uri(file) for file in application.py_files),
    ), uploads


def upload(uploads: Mapping[str, Path]) -> None:
    """Write files to their URIs, unless they are there already."""
    for uri, path in uploads.items():
        target = ObjectStoragePath(uri)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())


def _wheel_metadata(version: str, contents: Mapping[str, bytes]) -> dict[str, bytes]:
    folder = f"{_LIBRARY}-{version}.dist-info"
    metadata = {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {_LIBRARY}\nVersion: {version}\n",
        f"{folder}/WHEEL": "Wheel-Version: 1.0\nGenerator: lakecdc\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{folder}/RECORD": "".join(f"{name},,\n" for name in (*contents, f"{folder}/METADATA", f"{folder}/WHEEL")),
    }
    return {name: text.encode() for name, text in metadata.items()}


def _write_zip(target: Path, contents: dict[str, bytes]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # concurrent tasks each write their own file, and the last rename wins
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    partial.replace(target)


def _library_folder() -> Path:
    spec = importlib.util.find_spec(_LIBRARY)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"The library {_LIBRARY!r} of airflow-provider-lakecdc is not installed.")
    return Path(next(iter(spec.submodule_search_locations)))
