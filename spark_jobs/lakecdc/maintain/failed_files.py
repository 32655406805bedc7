"""Files that were written for a commit and not committed: deleted, unless somebody wants to look at a failed proof."""

from __future__ import annotations

import logging
import os.path
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lakecdc.contract.errors import VerificationError

log = logging.getLogger(__name__)

# named in the error itself; the log has all of them
_NAMED = 3


@contextmanager
def discarded_on_failure(places: Sequence[str], discard: Callable[[], object], *, keep_failed: bool) -> Iterator[None]:
    """Work on staged files that are of no use if it fails.

    :param places: locations of the files, or the folder of all of them.
    :param discard: deletes them.
    :param keep_failed: whether they stay if it is a proof that fails; the error says then where they are.
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
        return "It has written no files."
    more = len(places) - _NAMED
    rest = f" and {more} more, which the driver's log names" if more > 0 else ""
    common = os.path.commonprefix([place.rsplit("/", 1)[0] + "/" for place in places])
    folder = common[: common.rfind("/") + 1]
    named = ", ".join(filter(None, (place.removeprefix(folder) for place in places[:_NAMED])))
    which = f" ({named}{rest})" if named else ""
    return f"What it has written is kept in {folder}{which}, until remove_orphan_files takes it."
