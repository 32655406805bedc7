"""What a job writes to its log."""

from __future__ import annotations

import logging

from lakecdc.contract.secrets import mask


class MaskingFormatter(logging.Formatter):
    """Hides secrets in whole lines: messages of other libraries and traces hold addresses with passwords."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record and hide what is secret."""
        return mask(super().format(record))


def log_handler() -> logging.Handler:
    """The handler of a job's log, on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handler
