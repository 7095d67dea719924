"""`sluice meter` as it is typed: in a process of its own."""

import subprocess
import sys

import pytest

COMMANDS = ["rollup", "validate", "whatif", "recommend", "neighbours", "stream", "inspect", "repair", "verify-manifests"]


def typed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "proxy", "meter", *arguments], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("whatif", "--in", "absent"),
        ("whatif", "--in", "absent", "--quotas", "absent.toml"),
        ("rollup", "--in", "absent", "--out", "out", "--format", "xml"),
        ("recommend", "--in", "absent", "--percentile", "0"),
    ],
)
def test_whatever_is_wrong_with_what_was_typed_is_one_line(arguments: tuple[str, ...]) -> None:
    """A missing option, an unknown command and an absent file: exit code 2, one line on stderr, nothing on stdout."""
    done = typed(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("sluice: ")


def test_help_names_every_command() -> None:
    """`sluice meter --help` names what there is, on stdout, with exit code 0."""
    done = typed("--help")
    assert done.returncode == 0
    assert [command for command in COMMANDS if command not in done.stdout] == []
