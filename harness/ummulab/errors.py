# SPDX-License-Identifier: GPL-2.0-or-later
"""Errors meant for the person at the keyboard."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can act on: one clear line, an optional hint, no traceback.

    ``exit_code`` is 1 for a failure of the work itself and 2 for wrong usage.
    """

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} ({self.hint})"


class UsageError(UserError):
    """The command line or an environment variable is wrong."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, exit_code=2)
