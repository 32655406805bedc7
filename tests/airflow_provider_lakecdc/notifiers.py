"""A notifier like those of teams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import BaseNotifier

if TYPE_CHECKING:
    from airflow.sdk import Context


class FileNotifier(BaseNotifier):
    """Append a line to a file.

    :param path: path of the file.
    :param text: the line. (templated)
    """

    template_fields: Sequence[str] = ("text",)

    def __init__(self, path: str, text: str) -> None:
        super().__init__()
        self.path = path
        self.text = text

    def notify(self, context: Context) -> None:
        with Path(self.path).open("a") as file:
            file.write(f"{self.text}\n")
