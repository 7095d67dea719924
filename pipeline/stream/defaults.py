"""Defaults of a stream, without an import of Arrow, so that `--help` needs none."""

from typing import Final

MESSAGES_MAX: Final = 1_000
"""Messages of a batch: at most 500 MB, since a message has at most 512 KiB of a file."""
