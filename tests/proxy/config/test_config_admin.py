"""`[quota_admin]`, `[audit]` and `[admin]`: what is refused, with which message."""

# ruff: noqa: E501 -- the lines that operators read are written here in one piece

from pathlib import Path

import pytest

from proxy.config.checks.all import advice_on
from proxy.config.flags import Flags
from proxy.config.load import ConfigSource
from proxy.config.model import Config
from proxy.config.problem import ConfigProblems
from tests.support.problem_lines import without_place
from tests.support.tls.certificates import Authority

TOKEN = "0123456789abcdef"  # noqa: S105
UPSTREAM = '[upstream]\nbootstrap = "127.0.0.1:9092"\n'
LOCAL = '[[listener]]\naddress = "127.0.0.1:19092"\n'
LISTED = '[quota_admin]\nauthority = "list"\nprincipals = ["User:admin"]\n'


def load(folder: Path, text: str, flags: Flags | None = None) -> Config:
    path = folder / "sluice.toml"
    path.write_text(UPSTREAM + text)
    return ConfigSource(path, flags).load()


def problems(folder: Path, text: str, flags: Flags | None = None) -> list[str]:
    with pytest.raises(ConfigProblems) as caught:
        load(folder, text, flags)
    return without_place(caught.value.lines(), folder / "sluice.toml")


def anonymous(listener: str) -> str:
    return f'[[listener]]\naddress = "0.0.0.0:19092"\n{listener}\n[quota_admin]\nauthority = "list"\nprincipals = ["User:ANONYMOUS"]\n'


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "ops.token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


def test_by_default_no_client_may(tmp_path: Path) -> None:
    """By default no principal may change quotas, and there is no audit file and no token."""
    config = load(tmp_path, LOCAL)
    assert (config.quota_admin.authority, config.quota_admin.principals) == ("nobody", ())
    assert (config.audit.file, config.admin.tokens) == (None, ())


def test_a_flag_puts_principals_on_the_list(tmp_path: Path) -> None:
    """The flag adds principals to those of the file, and works without a file."""
    flags = Flags(quota_admin=("User:a", "User:b", "User:admin"))
    assert load(tmp_path, LOCAL + LISTED, flags).quota_admin.principals == ("User:admin", "User:a", "User:b")
    alone = ConfigSource(None, Flags(listen="127.0.0.1:1", upstream="127.0.0.1:2", quota_admin=("User:a",))).load()
    assert (alone.quota_admin.authority, alone.quota_admin.principals) == ("list", ("User:a",))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('principals = ["alice"]', 'quota_admin.principals: "alice" is not a principal; write a list such as ["User:alice"]'),
        ('principals = ["User:*"]', 'quota_admin.principals: "User:*" is not a principal: principals are compared character by character; write a list such as ["User:alice"]'),
        ('principals = ["User:a "]', 'quota_admin.principals: "User:a " is not a principal; write a list such as ["User:alice"]'),
        ('principals = ["User:__unknown__/x/GSSAPI"]', 'quota_admin.principals: "User:__unknown__/x/GSSAPI" stands for clients without a known user, which are never authorized; write a list such as ["User:alice"]'),
        ('principals = "User:a"', 'quota_admin.principals: "User:a" is not a list of principals; write a list such as ["User:alice"]'),
        ('principals = ["User:a"]', 'quota_admin.principals: has no effect where no client may; write authority = "list", or leave it out'),
        ('authority = "broker"\nprincipals = ["User:a"]', 'quota_admin.principals: has no effect where the broker decides on permissions; write authority = "list", or leave it out'),
        ('authority = "list"', 'quota_admin.principals: is missing: the list is empty; write principals = ["User:NAME"], or authority = "nobody"'),
        ('authority = "all"', 'quota_admin.authority: "all" is not valid; write "nobody", "list" or "broker"'),
    ],
)  # fmt: skip
def test_lists_that_mean_nothing(tmp_path: Path, text: str, line: str) -> None:
    """An invalid or ineffective list of principals is refused with one line."""
    assert problems(tmp_path, f"{LOCAL}[quota_admin]\n{text}\n") == [line]


def test_a_flag_beside_the_broker_is_refused(tmp_path: Path) -> None:
    """The flag is refused when the broker is the authority."""
    lines = problems(tmp_path, LOCAL + '[quota_admin]\nauthority = "broker"\n', Flags(quota_admin=("User:a",)))
    assert lines == ["command line: --quota-admin: has no effect where the broker decides on permissions; leave it out"]


@pytest.mark.parametrize(
    "listener", ["", 'protocol = "PLAINTEXT"', 'protocol = "SASL_PLAINTEXT"\nsasl_mechanisms = ["SCRAM-SHA-256"]\nrequire_sasl = false']
)
def test_anonymous_may_not_change_quotas_from_a_network_in_the_clear(tmp_path: Path, listener: str) -> None:
    """ANONYMOUS with the right to change quotas is refused on a listener without TLS and login beyond loopback."""
    assert problems(tmp_path, anonymous(listener)) == [
        "listener[1].address: User:ANONYMOUS may change quotas, and who reaches 0.0.0.0:19092 without TLS and login is that; "
        "take it from quota_admin, listen on loopback, or write insecure_quota_admin = true in the listener"
    ]
    assert "a client that reaches 0.0.0.0:19092 without a login is User:ANONYMOUS and may change quotas" in "\n".join(
        advice_on(load(tmp_path, anonymous(listener + "\ninsecure_quota_admin = true")))
    )


def test_anonymous_may_where_no_other_client_connects(tmp_path: Path) -> None:
    """ANONYMOUS may have the right on loopback, and on a listener that requires a login."""
    load(tmp_path, anonymous("").replace("0.0.0.0", "127.0.0.1"))
    load(tmp_path, anonymous('protocol = "SASL_PLAINTEXT"\nsasl_mechanisms = ["SCRAM-SHA-256"]'))


def test_anonymous_inside_tls_is_warned_of(tmp_path: Path) -> None:
    """check-config warns when ANONYMOUS clients may change quotas through TLS."""
    own = Authority(tmp_path).issue("server")
    config = load(tmp_path, anonymous(f'[listener.tls]\ncertificate = "{own.certificate}"\nkey = "{own.key}"'))
    assert any("is User:ANONYMOUS and may change quotas" in line for line in advice_on(config))


def test_an_allowance_that_allows_nothing_is_refused(tmp_path: Path) -> None:
    """`insecure_quota_admin` is refused where it has no effect."""
    line = "listener[1].insecure_quota_admin: has no effect: User:ANONYMOUS may change nothing here without it; leave it out"
    assert problems(tmp_path, LOCAL + "insecure_quota_admin = true\n") == [line]


def test_tokens_stand_in_files(tmp_path: Path, token: Path) -> None:
    """Tokens are read from files relative to the configuration."""
    config = load(tmp_path, LOCAL + '[admin]\naddress = "127.0.0.1:0"\ntokens = [{ name = "ops", file = "ops.token", role = "write" }]\n')
    assert [(one.name, one.role, one.secret()) for one in config.admin.tokens] == [("ops", "write", TOKEN.encode())]


@pytest.mark.parametrize(
    ("admin", "line"),
    [
        ('tokens = [{ name = "ops", file = "none" }]', "admin.tokens[1].file: {folder}/none cannot be read: No such file or directory; name a file that Sluice may read"),
        ('tokens = [{ name = "ops", file = "loose" }]', "admin.tokens[1].file: {folder}/loose is accessible to all users (mode 0644); chmod 600 it"),
        ('tokens = [{ name = "ops", file = "short" }]', "admin.tokens[1].file: {folder}/short does not contain a token: 16 to 4096 visible characters of ASCII on one line; make one with: openssl rand -hex 32"),
        ('tokens = [{ name = "ops", file = "ops.token" }, { name = "ops", file = "ops.token" }]', 'admin.tokens[2].name: "ops" is the name of admin.tokens[1] too; write another name'),
        ('tokens = [{ name = "ops", file = "ops.token", role = "root" }]', 'admin.tokens[1].role: "root" is not valid; write "read" or "write"'),
        ('tokens = [{ name = "ops", token = "abc", file = "ops.token" }]', "admin.tokens[1].token: is not a setting; known here: name, file, role"),
        ('tls = { certificate = "x", key = "y" }', "admin.tls.certificate: {folder}/x cannot be read: No such file or directory; name a file that Sluice may read"),
    ],
)  # fmt: skip
def test_tokens_and_tls_that_cannot_be(tmp_path: Path, token: Path, admin: str, line: str) -> None:
    """An invalid token or TLS setting is refused with one line that shows nothing of the token."""
    for name, text, mode in (("loose", TOKEN, 0o644), ("short", "geheim", 0o600)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    assert problems(tmp_path, f'{LOCAL}[admin]\naddress = "127.0.0.1:0"\n{admin}\n') == [line.format(folder=tmp_path)]


def test_tokens_do_not_cross_a_network_in_the_clear(tmp_path: Path, token: Path) -> None:
    """Tokens are refused beyond loopback without TLS, and without an admin address."""
    tokens = 'tokens = [{ name = "ops", file = "ops.token" }]\n'
    assert problems(tmp_path, f'{LOCAL}[admin]\naddress = "0.0.0.0:9644"\n{tokens}') == [
        "admin.tls: is missing: tokens would cross the network in the clear; write [admin.tls], or listen on loopback"
    ]
    assert problems(tmp_path, f"{LOCAL}[admin]\n{tokens}") == [
        'admin.tokens: has no effect without an address; write admin.address = "127.0.0.1:9644"'
    ]


@pytest.mark.parametrize(("mode", "loose"), [(0o600, False), (0o644, False), (0o660, True), (0o646, True)])
def test_who_may_change_quotas_is_not_for_others_to_write(tmp_path: Path, mode: int, loose: bool) -> None:
    """A configuration that grants rights is refused if its group or others can write it."""
    (tmp_path / "sluice.toml").touch()
    (tmp_path / "sluice.toml").chmod(mode)
    load(tmp_path, LOCAL)
    if loose:
        line = f"others may write it (mode {mode:04o}), and it decides who may change quotas; chmod go-w it"
        assert problems(tmp_path, LOCAL + LISTED) == [line]
    else:
        load(tmp_path, LOCAL + LISTED)


@pytest.mark.parametrize(
    ("admin", "expected"),
    [
        ("", []),
        ('address = "127.0.0.1:9644"', []),
        ('address = "127.0.0.1:9644"\nmetrics_names = "all"', []),
        (
            'address = "0.0.0.0:9644"',
            [
                "admin: /metrics names clients on this machine and to holders of a token only: a Prometheus elsewhere that has none sees sums; "
                'give it a token of [[admin.tokens]] by [admin.tls], or write metrics_names = "all" where clients that reach 0.0.0.0:9644 '
                "may see users and client-ids"
            ],
        ),
        (
            'address = "0.0.0.0:9644"\nmetrics_names = "all"',
            ['admin: every client that reaches 0.0.0.0:9644 sees names of clients in /metrics: metrics_names = "all" says so'],
        ),
    ],
)
def test_who_sees_names_in_metrics_is_reported(tmp_path: Path, admin: str, expected: list[str]) -> None:
    """check-config reports who sees client names in /metrics when the port can be reached from elsewhere."""
    config = load(
        tmp_path, '[[listener]]\naddress = "127.0.0.1:19092"\nprotocol = "PLAINTEXT"\n' + (f"[admin]\n{admin}\n" if admin else "")
    )
    assert advice_on(config) == expected


def test_metrics_names_is_local_or_all(tmp_path: Path) -> None:
    """`metrics_names` defaults to `local`, and other values than `local` and `all` are refused."""
    assert load(tmp_path, LOCAL).admin.metrics_names == "local"
    (line,) = problems(tmp_path, LOCAL + '[admin]\nmetrics_names = "none"\n')
    assert line.startswith("admin.metrics_names: ")
