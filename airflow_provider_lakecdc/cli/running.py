"""The end of every command: an error becomes one line with what to do, and an exit code."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from airflow_provider_lakecdc.submit.failures import one_line
from airflow_provider_lakecdc.submit.launcher import environment
from lakecdc.contract.report import EXIT_BAD_INPUT, EXIT_CONFLICT
from lakecdc.contract.secrets import mask

#: exit codes by failure class
EXIT_CODES = {"conflict": EXIT_CONFLICT, "bad input": EXIT_BAD_INPUT}
#: exit code of all other failures
EXIT_UNKNOWN = 1
# the exit code of shells after SIGINT
_INTERRUPTED = 130
# makes Airflow read connections from its database too, as its own commands do
_KNOWS_CONNECTIONS = {"_AIRFLOW_PROCESS_CONTEXT": "server"}


def run_command(name: str, args: Namespace) -> NoReturn:
    """Run ``main`` of a command's module and exit with its result or with the code of its error."""
    with _quiet(args.verbose), environment(_KNOWS_CONNECTIONS):
        try:
            code = importlib.import_module(f"airflow_provider_lakecdc.cli.{name}").main(args)
            sys.stdout.flush()
        except BrokenPipeError:
            # the reader, such as head, closed the pipe; buffered output must not fail at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        except KeyboardInterrupt:
            code = _INTERRUPTED
        except Exception as error:
            if args.verbose:
                print(mask(traceback.format_exc()), file=sys.stderr)
            print(f"Error: {one_line(error)}", file=sys.stderr)
            code = EXIT_CODES.get(getattr(error, "failure_class", ""), EXIT_UNKNOWN)
    sys.exit(code)


@contextmanager
def _quiet(verbose: bool) -> Iterator[None]:
    """Silence logs, or with ``verbose`` send them to standard error; standard output is the command's."""
    import structlog
    from airflow.cli.utils import redirect_stdout_log_handlers_to_stderr

    redirect_stdout_log_handlers_to_stderr()
    if verbose:
        yield
        return
    disabled, wrapper = logging.root.manager.disable, structlog.get_config()["wrapper_class"]
    logging.disable(logging.CRITICAL)
    # operators log through structlog
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(wrapper_class=wrapper)
        logging.disable(disabled)
