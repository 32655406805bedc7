"""What all commands share: how they end. An error is one line that says what to do, and an exit code."""

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

#: by class of a failure, where it has a code of its own
EXIT_CODES = {"conflict": EXIT_CONFLICT, "bad input": EXIT_BAD_INPUT}
#: of all other failures
EXIT_UNKNOWN = 1
# as shells report programs that a signal has ended
_INTERRUPTED = 130
# with which Airflow's own commands make it look for connections in its database too
_KNOWS_CONNECTIONS = {"_AIRFLOW_PROCESS_CONTEXT": "server"}


def run_command(name: str, asked: Namespace) -> NoReturn:
    """Run ``main`` of a command's module and exit: with what it returns, or as its error wants.

    :param name: of the module in this package.
    :param asked: the command's arguments, ``verbose`` among them.
    """
    with _quiet(asked.verbose), environment(_KNOWS_CONNECTIONS):
        try:
            code = importlib.import_module(f"airflow_provider_lakecdc.cli.{name}").main(asked)
            sys.stdout.flush()
        except BrokenPipeError:
            # the reader, such as head, has seen enough; what is still buffered must not fail at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        except KeyboardInterrupt:
            code = _INTERRUPTED
        except Exception as error:
            if asked.verbose:
                print(mask(traceback.format_exc()), file=sys.stderr)
            print(f"Error: {one_line(error)}", file=sys.stderr)
            code = EXIT_CODES.get(getattr(error, "failure_class", ""), EXIT_UNKNOWN)
    sys.exit(code)


@contextmanager
def _quiet(verbose: bool) -> Iterator[None]:
    """Keep logs off the terminal, or with ``verbose`` off the standard output, which is the command's own."""
    import structlog
    from airflow.cli.utils import redirect_stdout_log_handlers_to_stderr

    redirect_stdout_log_handlers_to_stderr()
    if verbose:
        yield
        return
    disabled, wrapper = logging.root.manager.disable, structlog.get_config()["wrapper_class"]
    logging.disable(logging.CRITICAL)
    # operators have loggers of another kind
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(wrapper_class=wrapper)
        logging.disable(disabled)
