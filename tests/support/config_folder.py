"""A configuration file in a folder, and the messages about its problems."""

from pathlib import Path

import pytest

from proxy.config.load import ConfigSource
from proxy.config.model import Config
from proxy.config.problem import ConfigProblems
from tests.support.problem_lines import without_place


def load(folder: Path, text: str) -> Config:
    """Write the file and read it with Sluice's reader."""
    path = folder / "sluice.toml"
    path.write_text(text, encoding="utf-8")
    return ConfigSource(path).load()


def complaints(folder: Path, text: str) -> list[str]:
    """Return the messages about it, without the paths of the file and its folder."""
    with pytest.raises(ConfigProblems) as caught:
        load(folder, text)
    return [line.replace(f"{folder}/", "") for line in without_place(caught.value.lines(), folder / "sluice.toml")]
