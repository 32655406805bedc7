"""The output of a job in the task's log: Spark's chatter folded, what people look for not."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

OPEN, CLOSE = "::group::Spark", "::endgroup::"
_KEPT = 20
# Spark's pattern of log lines, and that of our jobs
_SPARK = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>[A-Z]+) ")
_OURS = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ [A-Z]+ ")
_SAID = re.compile(rf"{_OURS.pattern}lakecdc[\w.]*: (?P<message>.*)", re.DOTALL)
_TROUBLE = re.compile(
    r"^(Traceback \(most recent call last\)|Exception in thread|([\w$]+\.)*\w+(Error|Exception)\b)|\bKilled\b"
)
_CHATTER = ("TRACE", "DEBUG", "INFO")
# what spark-submit prints before there is a log, also behind a warning: the jars it fetches
_FETCHING = re.compile(r":: |Ivy Default Cache set to|The jars for the packages stored in|Using Spark's default log4j")


class JobOutput:
    """Sorts the lines of one job.

    Spark's lines up to INFO and what is printed before the job says its first word are chatter; a line without a level
    belongs to the one before it.

    :param listeners: called with the rest of what the job's log says, by how it begins.
    """

    def __init__(self, listeners: Mapping[str, Callable[[str], None]] | None = None) -> None:
        self._listeners = listeners or {}
        self._lines: deque[str] = deque(maxlen=_KEPT)
        self._all: deque[str] = deque(maxlen=_KEPT)

    @property
    def last_lines(self) -> list[str]:
        """The last lines that are no chatter; of an output that is nothing else, its last lines."""
        return list(self._lines or self._all)

    def folded(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines with the marks between which Airflow's web page folds them.

        :param lines: as they come.
        """
        chatter, is_open = True, False
        for line in lines:
            chatter = _is_chatter(line.strip(), chatter)
            if chatter != is_open:
                yield OPEN if chatter else CLOSE
                is_open = chatter
            self._all.append(line.rstrip())
            if not chatter:
                self._lines.append(line.rstrip())
                self._tell(line.rstrip())
            yield line
        if is_open:
            yield CLOSE

    def _tell(self, line: str) -> None:
        said = _SAID.fullmatch(line)
        for beginning, listener in self._listeners.items() if said else ():
            if said and said["message"].startswith(beginning):
                listener(said["message"].removeprefix(beginning))


def _is_chatter(line: str, before: bool) -> bool:
    if found := _SPARK.match(line):
        return found["level"] in _CHATTER
    if _OURS.match(line) or _TROUBLE.search(line):
        return False
    return before or _FETCHING.match(line) is not None
