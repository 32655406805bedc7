"""Output of a job in the task's log, with Spark's chatter folded."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

OPEN, CLOSE = "::group::Spark", "::endgroup::"
_MOST_LINES = 20
# log line formats of Spark and of lakecdc's jobs
_SPARK = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>[A-Z]+) ")
_OURS = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ [A-Z]+ ")
_LAKECDC = re.compile(rf"{_OURS.pattern}lakecdc[\w.]*: (?P<message>.*)", re.DOTALL)
_TROUBLE = re.compile(
    r"^(Traceback \(most recent call last\)|Exception in thread|([\w$]+\.)*\w+(Error|Exception)\b)|\bKilled\b"
)
_CHATTER = ("TRACE", "DEBUG", "INFO")
# output of spark-submit before logging starts, also after a warning: fetched jars
_FETCHING = re.compile(r":: |Ivy Default Cache set to|The jars for the packages stored in|Using Spark's default log4j")


class JobOutput:
    """The output lines of one job.

    Spark's lines up to INFO and all output before the job's first line are chatter; a line without a level belongs to
    the one before it.

    :param listeners: by prefix of a log message; called with the rest of the message.
    """

    def __init__(self, listeners: Mapping[str, Callable[[str], None]] | None = None) -> None:
        self._listeners = listeners or {}
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._all: deque[str] = deque(maxlen=_MOST_LINES)

    @property
    def last_lines(self) -> list[str]:
        """Return the last lines without chatter, or the last lines if there is only chatter."""
        return list(self._lines or self._all)

    def fold(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines as they arrive, with marks around chatter that Airflow's web page folds."""
        chatter, is_open = True, False
        for line in lines:
            chatter = _is_chatter(line.strip(), chatter)
            if chatter != is_open:
                yield OPEN if chatter else CLOSE
                is_open = chatter
            self._all.append(line.rstrip())
            if not chatter:
                self._lines.append(line.rstrip())
                self._notify(line.rstrip())
            yield line
        if is_open:
            yield CLOSE

    def _notify(self, line: str) -> None:
        match = _LAKECDC.fullmatch(line)
        for prefix, listener in self._listeners.items() if match else ():
            if match and match["message"].startswith(prefix):
                listener(match["message"].removeprefix(prefix))


def _is_chatter(line: str, before: bool) -> bool:
    if match := _SPARK.match(line):
        return match["level"] in _CHATTER
    if _OURS.match(line) or _TROUBLE.search(line):
        return False
    return before or _FETCHING.match(line) is not None
