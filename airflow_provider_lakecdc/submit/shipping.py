"""The job script and library that are shipped to the cluster."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import zipfile
from pathlib import Path

from airflow_provider_lakecdc import settings

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

    It has only pure Python; native packages come from the cluster's image or a packed environment.
    """
    folder = _library_folder()
    sources = [path for path in sorted(folder.rglob("*")) if path.is_file() and _is_shipped(path.relative_to(folder))]
    contents = {f"{_LIBRARY}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in sources}
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    target = settings.cache_folder() / f"{_LIBRARY}-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        _write_zip(target, contents)
    return target


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


def _is_shipped(path: Path) -> bool:
    return path.parts[0] != _SCRIPTS and "__pycache__" not in path.parts and path.suffix != ".pyc"
