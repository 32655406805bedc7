"""Log format of jobs."""

from __future__ import annotations

import logging

from lakecdc.contract.secrets import mask


class MaskingFormatter(logging.Formatter):
    """Formatter that hides secrets in whole lines, because other libraries' messages and traces contain passwords in
    URLs.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a record and mask secrets."""
        return mask(super().format(record))


def log_handler() -> logging.Handler:
    """Create the handler of a job's log, on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handler
