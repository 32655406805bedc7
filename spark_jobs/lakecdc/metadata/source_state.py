"""State of a job's source before Spark starts, as reported by a probe to the worker."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec

from lakecdc.contract.spec import JobSpec
from lakecdc.metadata.positions import Position, decode

P = ParamSpec("P")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceState:
    """The state of a source; the default means unknown.

    :param refusal: why no run can read it, without secrets; None if a run may.
    :param failure_class: class of that failure.
    :param idle: position of every target once the run is over, if the source has nothing new for any of them; None
        unless that is proven.
    :param facts: the source's own numbers for the report of an idle run.
    """

    refusal: str | None = None
    failure_class: str | None = None
    idle: Mapping[str, Position] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Encode the state as JSON text."""
        idle = None if self.idle is None else {table: position.encode() for table, position in self.idle.items()}
        return json.dumps({**vars(self), "idle": idle, "facts": dict(self.facts)})

    @classmethod
    def from_json(cls, text: str) -> SourceState:
        """Read a state back.

        :raises ValueError: the text is not JSON.
        """
        document = json.loads(text)
        idle = document["idle"]
        positions = None if idle is None else {table: decode(each) for table, each in idle.items()}
        return cls(**{**document, "idle": positions})


def may_be_idle(spec: JobSpec, positions: Mapping[str, Position]) -> bool:
    """Check whether a run only has work if its source has changes, by the positions of fed targets."""
    reloads = getattr(spec.options, "reload", ())
    if spec.options.dry_run or reloads or spec.aggregated:
        return False
    return all(target.table in positions for target in spec.targets)


def state_unless_unknown(look: Callable[P, SourceState], *arguments: P.args, **more: P.kwargs) -> SourceState:
    """Look for changes; if that fails, leave the source to the job, which reports the problem."""
    try:
        return look(*arguments, **more)
    except Exception as error:
        log.info("Cannot check whether the source has changes: %s", type(error).__name__)
        return SourceState()
