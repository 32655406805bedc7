"""Objects as files of a local folder, for development and for machines that share nothing."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from lakecdc.contract.errors import InputError, LakecdcError, SourceUnavailableError, UnsupportedError
from lakecdc.metadata.locations import split
from lakecdc.object_store.storage import Answer, DeniedError, Listed, Stored

#: prefix and suffix of files that are being written; listings omit them
_BEGIN, _END = ".lakecdc-", ".tmp"
#: file systems that only one machine mounts, so that its kernel orders the writers
_LOCAL = ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "tmpfs", "xfs", "zfs")
_MOUNTS = Path("/proc/self/mountinfo")


class LocalStorage:
    """A :class:`Storage` of files below a folder.

    A file is created by a hard link, which fails if the file exists; it is replaced under a lock of its folder.

    :param folder: location of the warehouse; a path or ``file:…``.
    :param exclusive: whether writes must exclude each other, which needs a file system of this machine alone.
    """

    def __init__(self, folder: str, *, exclusive: bool = True) -> None:
        self._kind = local_file_system(_path(folder)) if exclusive else "any"

    def __str__(self) -> str:
        return f"local files ({self._kind})"

    def read(self, location: str) -> Stored | None:
        try:
            body = _path(location).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise _unavailable("read", location, error) from error
        return Stored(body, _tag(body))

    def exists(self, location: str) -> bool:
        with _failing_as("look for", location):
            return _path(location).is_file()

    def create(self, location: str, body: bytes) -> Answer:
        path = _path(location)
        with _failing_as("write", location):
            _make_folder(path.parent)
            with _temporary(path.parent, body) as temporary:
                return _published(path.parent, lambda: os.link(temporary, path))

    def replace(self, location: str, body: bytes, tag: str) -> Answer:
        path = _path(location)
        with _failing_as("write", location), _locked(path.parent) as folder_exists:
            there = self.read(location) if folder_exists else None
            if there is None or there.tag != tag:
                return Answer.REFUSED
            with _temporary(path.parent, body) as temporary:
                return _published(path.parent, lambda: temporary.replace(path))

    def put(self, location: str, body: bytes) -> None:
        path = _path(location)
        with _failing_as("write", location):
            _make_folder(path.parent)
            with _temporary(path.parent, body) as temporary:
                temporary.replace(path)
                _sync(path.parent)

    def delete(self, location: str) -> None:
        path = _path(location)
        with _failing_as("delete", location), _locked(path.parent) as folder_exists:
            if folder_exists:
                path.unlink(missing_ok=True)
                _sync(path.parent)

    def list(self, prefix: str) -> Iterator[Listed]:
        path = _path(prefix)
        root = prefix.removesuffix(split(prefix)[2])
        folder, start = (path, f"{path}/") if prefix.endswith("/") else (path.parent, str(path))
        for file in _files(folder, start):
            # deleted since the folder was read
            with suppress(FileNotFoundError):
                status = file.stat()
                yield Listed(f"{root}{file}", status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def is_temporary(location: str) -> bool:
    """Check whether a file is being written, or was when its writer died."""
    name = location.rpartition("/")[2]
    return name.startswith(_BEGIN) and name.endswith(_END)


def local_file_system(path: Path, mounts: Path = _MOUNTS) -> str:
    """Return the type of a folder's file system; refuse one that other machines may have mounted.

    :param mounts: the kernel's table of mounts.
    """
    try:
        kind = _type_of(os.path.realpath(path), mounts.read_text())
    except OSError as error:
        raise UnsupportedError(
            f"Cannot determine the file system of {path}: {error}.", hint="Use a local folder of Linux, or S3."
        ) from error
    if kind not in _LOCAL:
        raise UnsupportedError(
            f"The warehouse {path} is on a file system of type {kind!r}, which several machines may write at once; "
            "their writes do not exclude each other there.",
            hint=f"Use a local disk ({', '.join(_LOCAL)}), S3, or another catalog.",
        )
    return kind


def _type_of(path: str, mounts: str) -> str:
    """Return the type of a path's mount; of two mounts on one folder the later one counts."""
    longest, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = left.split(" ")[4].encode().decode("unicode_escape")
        if len(point) >= len(longest) and f"{path}/".startswith(f"{point.rstrip('/')}/"):
            longest, kind = point, right.split(" ")[0]
    return kind


def _path(location: str) -> Path:
    scheme, host, path = split(location)
    plain = path.startswith("/") and not {".", ".."} & set(path.split("/")) and "//" not in path
    if scheme not in ("", "file") or host not in ("", "localhost") or not plain:
        raise InputError(
            f"{location!r} is not a local location.",
            hint="Use an absolute path without // and dots, or one such as file:///data/lake.",
        )
    return Path(path)


def _tag(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@contextmanager
def _failing_as(what: str, location: str) -> Iterator[None]:
    """Raise errors of the file system as errors that say what to do; nothing was written."""
    try:
        yield
    except OSError as error:
        raise _unavailable(what, location, error) from error


def _unavailable(what: str, location: str, error: OSError) -> LakecdcError:
    kind = DeniedError if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else SourceUnavailableError
    return kind(
        f"Cannot {what} {location}: {error}.", hint="Check the rights and the free space of the warehouse's folder."
    )


@contextmanager
def _temporary(folder: Path, body: bytes) -> Iterator[Path]:
    """Write a hidden file durably; remove it afterwards unless it was renamed."""
    path = folder / f"{_BEGIN}{uuid.uuid4().hex}{_END}"
    try:
        with path.open("xb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        yield path
    finally:
        with suppress(OSError):
            path.unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Lock a folder against all threads and processes of this machine; False if it does not exist."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield True
    finally:
        os.close(lock)


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
    _sync(folder.parent)


def _published(folder: Path, publish: Callable[[], object]) -> Answer:
    """Give a file its name, and return once that survives a crash."""
    try:
        publish()
        _sync(folder)
    except FileExistsError:
        return Answer.REFUSED
    except OSError:
        return Answer.UNCLEAR
    return Answer.WRITTEN


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files(folder: Path, start: str = "") -> Iterator[Path]:
    """Yield the files of a folder in any depth; some may be deleted meanwhile.

    :param start: prefix of the paths of its entries.
    """
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise _unavailable("list", str(folder), error) from error
    for entry in entries:
        if not entry.path.startswith(start) or is_temporary(entry.name):
            continue
        # links may lead to foreign files
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        else:
            yield Path(entry.path)
