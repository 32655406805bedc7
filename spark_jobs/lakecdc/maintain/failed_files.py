"""Handle files that were written but not committed: delete them, or keep them for inspection after a failed proof."""

from __future__ import annotations

import logging
import os.path
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lakecdc.contract.errors import VerificationError

log = logging.getLogger(__name__)

# number of files named in the error; the log names all
_NAMED = 3


@contextmanager
def discarded_on_failure(places: Sequence[str], discard: Callable[[], object], *, keep_failed: bool) -> Iterator[None]:
    """Discard staged files if the work on them fails.

    :param places: locations of the files, or their common folder.
    :param keep_failed: keep the files after a failed proof; the error then names their location.
    """
    try:
        yield
    except BaseException as error:
        if not (keep_failed and isinstance(error, VerificationError)):
            discard()
            raise
        error.hint = " ".join(filter(None, (error.hint, _where(places))))
        error.attributes["failed_files"] = list(places)
        for place in places:
            log.warning("Kept after a failed proof: %s", place)
        raise


def _where(places: Sequence[str]) -> str:
    if not places:
        return "No files were written."
    more = len(places) - _NAMED
    rest = f" and {more} more, see the driver's log" if more > 0 else ""
    common = os.path.commonprefix([place.rsplit("/", 1)[0] + "/" for place in places])
    folder = common[: common.rfind("/") + 1]
    named = ", ".join(filter(None, (place.removeprefix(folder) for place in places[:_NAMED])))
    which = f" ({named}{rest})" if named else ""
    return f"The written files are kept in {folder}{which} until remove_orphan_files deletes them."
