"""Every exception that msprobe raises on purpose."""

from __future__ import annotations


class MsprobeException(Exception):
    """Base of all errors that a user can cause; its text is one clear sentence, fit to be shown alone."""


class ConfigError(MsprobeException):
    """A configuration field has a value that is not allowed; the text names field, value and what is allowed."""


class DumpFormatError(MsprobeException):
    """A dump directory or one of its files cannot be read; the text names the path and the reason."""


class UsageError(MsprobeException):
    """An interface was called with arguments it cannot work with."""


class MissingPackageError(MsprobeException, ImportError):
    """A package that this part of msprobe is for is not installed; the text names it and the command that installs it."""
