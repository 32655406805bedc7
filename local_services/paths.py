"""Folders of the services' tools, and their accessibility for other accounts."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TOOLS = REPOSITORY / "build" / "tools"
# only root writes to it and uses it
SYSTEM_TOOLS = Path("/var/cache/lakecdc")


@dataclass(frozen=True)
class Account:
    """A system account a service runs as.

    :param name: login name
    :param uid: numeric user id
    :param gid: numeric id of its primary group
    """

    name: str
    uid: int
    gid: int


def unprivileged_account(name: str = "nobody") -> Account | None:
    """Return the account for a server that refuses to run as root.

    :param name: account to use when this process is root
    :return: the account, or None when this process is not root and needs no other
    """
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam(name)
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def first_closed_folder(path: Path, account: Account) -> Path | None:
    """Return the topmost folder on the way to ``path`` that the account may not enter, or None if all are open.

    :param path: a file or folder; only its parents are checked
    """
    for folder in reversed(path.resolve().parents):
        if folder.exists() and not _may_enter(folder.stat(), account):
            return folder
    return None


def reachable_folder(preferred: Path, prefix: str) -> Path:
    """Return ``preferred`` if a service may keep its data below it, else a new temporary folder.

    The usual reason for the second case is a checkout below ``/root``.

    :param preferred: folder to use if possible; created with its parents
    :param prefix: start of the temporary folder's name
    :return: an existing folder whose parents the service's account may enter
    """
    preferred.mkdir(parents=True, exist_ok=True)
    account = unprivileged_account()
    if account is None or first_closed_folder(preferred / "data", account) is None:
        return preferred
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o755)
    return folder


def program_folder(preferred: Path) -> Path:
    """Return the folder for programs that a service's account runs: ``preferred``, or a system folder.

    :param preferred: folder to use if the account may enter its parents; it may not exist yet
    """
    account = unprivileged_account()
    if account is None or first_closed_folder(preferred, account) is None:
        return preferred
    return SYSTEM_TOOLS / preferred.name


def _may_enter(status: os.stat_result, account: Account) -> bool:
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)
