"""`[upstream.credentials]` and `[canary]`: what is read, and one line without a secret for each problem."""

# ruff: noqa: E501 -- the lines that operators read are written here in one piece

from pathlib import Path

import pytest

from proxy.config.sections.credentials import CredentialsError
from proxy.config.sections.login import SECRET_BYTES_MAX
from tests.support import config_folder
from tests.support.config_folder import load

CANARY = "canary-77b1"
SCRAM = 'mechanism = "SCRAM-SHA-512"\nusername = "sluice"\n'
FILE = 'password_file = "password"\n'


def text_of(credentials: str = "", canary: str = "", *, bootstrap: str = "kafka:9092") -> str:
    listener = '[[listener]]\naddress = "127.0.0.1:19092"\n'
    tables = (f"[upstream.credentials]\n{credentials}\n" if credentials else "") + (f"[canary]\n{canary}\n" if canary else "")
    return f'[upstream]\nbootstrap = "{bootstrap}"\n{listener}{tables}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a password file and a token file of mode 0600."""
    for name, secret in (("password", CANARY + "\n"), ("token", f"e30.{CANARY}.x")):
        write(tmp_path / name, secret.encode())
    return tmp_path


def write(path: Path, secret: bytes, mode: int = 0o600) -> None:
    path.write_bytes(secret)
    path.chmod(mode)


def complaints(folder: Path, text: str) -> list[str]:
    lines = config_folder.complaints(folder, text)
    assert CANARY not in "".join(lines)
    return lines


def test_secrets_are_read_when_they_are_needed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret is read from its file or the environment at each use."""
    config = load(folder, text_of(SCRAM + FILE, 'mechanism = "OAUTHBEARER"\ntoken_file = "token"\ninsecure_plain = true'))
    assert config.upstream.credentials
    assert config.canary
    assert config.upstream.credentials.secret().reveal() == CANARY
    assert config.canary.secret().reveal() == f"e30.{CANARY}.x"
    write(folder / "password", b"another")
    assert config.upstream.credentials.secret().reveal() == "another"
    monkeypatch.setenv("SLUICE_PASSWORD", CANARY)
    config = load(folder, text_of(SCRAM + 'password_env = "SLUICE_PASSWORD"'))
    assert config.upstream.credentials
    assert config.upstream.credentials.secret().reveal() == CANARY
    assert CANARY not in repr(config)
    monkeypatch.delenv("SLUICE_PASSWORD")
    with pytest.raises(CredentialsError, match="SLUICE_PASSWORD is not set"):
        config.upstream.credentials.secret()


@pytest.mark.parametrize(
    ("credentials", "line"),
    [
        (
            'mechanism = "GSSAPI"',
            'upstream.credentials.mechanism: "GSSAPI" is not valid; write "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512" or "OAUTHBEARER"',
        ),
        (SCRAM, "upstream.credentials.password_file: is missing with SCRAM-SHA-512; name the file with the password, or write password_env"),
        (SCRAM + f'password = "{CANARY}"', "upstream.credentials.password: is not a setting; a secret stands in a file of its own: name it in password_file, or a variable of the environment in password_env"),
        (SCRAM + FILE + 'password_env = "X"', "upstream.credentials.password_env: has no effect beside password_file; write one of the two"),
        (SCRAM + FILE + 'token_file = "token"', "upstream.credentials.token_file: has no effect with SCRAM-SHA-512; write password_file"),
        ('mechanism = "SCRAM-SHA-256"\n' + FILE, "upstream.credentials.username: is missing with SCRAM-SHA-256; write the name of the user"),
        (SCRAM.replace("sluice", "schleuß") + FILE, "upstream.credentials.username: has letters beyond ASCII, which Kafka's SCRAM does not accept; name a user without them, or write PLAIN"),
        (SCRAM + 'password_env = "A B"', "upstream.credentials.password_env: is not the name of an environment variable; write the name of an environment variable"),
        (
            SCRAM + 'password_env = "SLUICE_NOT_SET"',
            "upstream.credentials.password_env: SLUICE_NOT_SET is not set in the environment; set it, or name a file in password_file",
        ),
        (SCRAM + 'password_file = "absent"', "upstream.credentials.password_file: absent cannot be read: No such file or directory; name a file that Sluice may read"),
        (
            'mechanism = "PLAIN"\nusername = "sluice"\n' + FILE,
            "upstream.credentials.mechanism: PLAIN without TLS lets a password cross the network in the clear; write [upstream.tls], SCRAM-SHA-512, or insecure_plain = true where the network is trusted",
        ),
        (
            'mechanism = "OAUTHBEARER"\ntoken_file = "token"',
            "upstream.credentials.mechanism: OAUTHBEARER without TLS lets a token cross the network in the clear; write [upstream.tls], SCRAM-SHA-512, or insecure_plain = true where the network is trusted",
        ),
        (
            'mechanism = "OAUTHBEARER"\nusername = "sluice"\ntoken_file = "token"\ninsecure_plain = true',
            "upstream.credentials.username: has no effect with OAUTHBEARER, where the token names the user; leave it out",
        ),
        (
            'mechanism = "OAUTHBEARER"\ninsecure_plain = true',
            "upstream.credentials.token_file: is missing with OAUTHBEARER; name the file with the token",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(folder: Path, credentials: str, line: str) -> None:
    """A problem of the credentials is one line with the key, what is wrong, and what to write."""
    assert complaints(folder, text_of(credentials)) == [line]


@pytest.mark.parametrize(
    ("secret", "mode", "problem"),
    [
        (CANARY.encode(), 0o660, "password is writable or executable for its group (mode 0660); chmod 600 it"),
        (CANARY.encode(), 0o604, "password is accessible to all users (mode 0604); chmod 600 it"),
        (b"\n", 0o600, "password is empty; write the secret into it"),
        (b"\xff" + CANARY.encode(), 0o600, "password is not UTF-8; save it as UTF-8"),
        (CANARY.encode() + b"\nmore", 0o600, "password contains more than one line; write the secret, and nothing else, into it"),
        (b"x" * (SECRET_BYTES_MAX + 1), 0o600, f"password is larger than {SECRET_BYTES_MAX} bytes; name a file with nothing else in it"),
    ],
)
def test_files_that_hold_no_secret(folder: Path, secret: bytes, mode: int, problem: str) -> None:
    """A secret file that others can read, or with invalid content, is refused."""
    write(folder / "password", secret, mode)
    assert complaints(folder, text_of(SCRAM + FILE)) == [f"upstream.credentials.password_file: {problem}"]


def test_passwords_may_cross_loopback(folder: Path) -> None:
    """PLAIN without TLS is accepted for brokers on loopback."""
    config = load(folder, text_of('mechanism = "PLAIN"\nusername = "sluice"\n' + FILE, bootstrap="127.0.0.1:9092"))
    assert config.upstream.credentials


def test_the_canary_is_another_account(folder: Path) -> None:
    """The canary may not use the account of the upstream credentials."""
    assert complaints(folder, text_of(SCRAM + FILE, SCRAM + FILE)) == [
        "canary.username: is the account of upstream.credentials too; name one that has no rights at all"
    ]
