"""The command line reports errors in one line and with an exit code."""

# ruff: noqa: E501 -- the lines that operators read are written here in one piece

import importlib.metadata
import sys
from pathlib import Path

import msgspec
import pytest

from proxy.base.host_port import HostPort
from proxy.config.checks.all import advice_on
from proxy.config.model import Config, Listener, Upstream
from proxy.config.sections.tls import ListenerTls
from sluice_cli.root import main

GOOD = '[upstream]\nbootstrap = "kafka:9092"\n[[listener]]\naddress = "127.0.0.1:19092"\n'
ADVICE = 'listener default: protocol = "auto" lets the brokers decide which clients have to log in; declare "SASL_PLAINTEXT" where they require a login, "PLAINTEXT" where they do not'


def sluice(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], list[str]]:
    """Run one command in this process; return its exit code and the lines of stdout and stderr."""
    path_before = list(sys.path)
    try:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
    finally:
        sys.path[:] = path_before
    out, err = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, out.splitlines(), err.splitlines()


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`sluice --version` prints the version of the distribution."""
    assert sluice(capsys, "--version") == (0, [f"sluice, version {importlib.metadata.version('kafka-sluice')}"], [])


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`sluice --help` prints the commands to stdout with exit code 0."""
    code, out, err = sluice(capsys, "--help")
    assert (code, err) == (0, [])
    assert {"run", "check-config", "demo"} <= {line.split()[0] for line in out if line.startswith("  ")}


def test_run_explains_the_flags_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    """`sluice run --help` explains exactly these flags."""
    _, out, _ = sluice(capsys, "run", "--help")
    flags = {word for line in out for word in line.split() if word.startswith("--")}
    assert flags == {
        "--config", "--listen", "--upstream", "--advertise", "--sidecar", "--quotas", "--enforcement", "--admin", "--metering", "--workers", "--quota-admin", "--profile", "--help",
        "--listen.",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "Missing command. (sluice --help explains)"),
        (["bogus"], "No such command 'bogus'. (sluice --help explains)"),
        (["run", "--bogus"], "No such option '--bogus'. (sluice run --help explains)"),
        (["run", "--listen"], "Option '--listen' requires an argument. (sluice --help explains)"),
        (["run", "extra"], "Got unexpected extra argument (extra) (sluice run --help explains)"),
        (["check-config"], "Missing argument 'sluice.toml'. (sluice check-config --help explains)"),
        (["check-config", "/nowhere.toml"], "/nowhere.toml: cannot be read: No such file or directory; name a file that Sluice may read"),
        (
            ["run", "--config", "/nowhere.toml"],
            "/nowhere.toml: cannot be read: No such file or directory; name a file that Sluice may read",
        ),
        (
            ["run", "--listen", "h:1", "--upstream", "k:1", "--quota-admin", "User:a", "--quota-admin", "bob"],
            'command line: --quota-admin: "bob" is not a principal; write --quota-admin with a principal such as User:alice',
        ),
        (
            ["run", "--listen", "h:1", "--upstream", "k:1", "--enforcement", "DELAY"],
            'command line: --enforcement: "DELAY" is not valid; write --enforcement delay, mute or observe',
        ),
        (
            ["run", "--listen", "h:1", "--upstream", "k:1", "--quotas", "/nowhere.toml"],
            "/nowhere.toml: cannot be read: No such file or directory; name a file that Sluice may read",
        ),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str], arguments: list[str], line: str) -> None:
    """A wrong command line gives one line on stderr, nothing on stdout, and exit code 2."""
    assert sluice(capsys, *arguments) == (2, [], [f"sluice: {line}"])


def test_advice_where_certificates_name_users() -> None:
    """A listener with client certificates but without SASL is advised that brokers do not see the certificates."""
    tls = ListenerTls(certificate=Path("c.pem"), key=Path("k.pem"), client_auth="required", client_ca=Path("ca.pem"))
    upstream = Upstream(bootstrap=(HostPort("127.0.0.1", 9092),))

    def advice(listener: Listener) -> list[str]:
        return advice_on(Config(upstream=upstream, listeners=(listener,)))

    mutual = Listener(address=HostPort("127.0.0.1", 9093), name="mtls", protocol="SSL", tls=tls)
    assert advice(mutual) == [
        "listener mtls: brokers do not see the certificates of clients: they see Sluice's identity and address, and their ACLs cannot tell these clients apart"
    ]
    assert advice(msgspec.structs.replace(mutual, protocol="SASL_SSL")) == []
    assert advice(msgspec.structs.replace(mutual, tls=msgspec.structs.replace(tls, client_auth="none"))) == []


def test_check_config_has_no_advice_for_a_declared_listener(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check-config` gives no advice for a listener with a declared protocol."""
    path = tmp_path / "sluice.toml"
    path.write_text(GOOD + 'protocol = "sasl_plaintext"\n')
    assert sluice(capsys, "check-config", str(path)) == (0, [f"{path}: valid (1 listener)"], [])


def test_check_config_warns_of_an_admin_port_among_the_ports_of_brokers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check-config` names the broker whose port the admin port has; ids of brokers are known only at run time."""
    path = tmp_path / "sluice.toml"
    path.write_text(GOOD + 'protocol = "sasl_plaintext"\nfirst_broker_port = 9600\n[admin]\naddress = "127.0.0.1:9644"\n')
    code, out, _ = sluice(capsys, "check-config", str(path))
    line = "admin.address 127.0.0.1:9644 is the port of broker 44 of listener default, if there is one; write another port"
    assert (code, out[1:]) == (0, [f"{path}: {line}"])


QUOTAS = """
[[quota]]
client-id = "default"
producer_byte_rate = 1000
[[quota]]
user = "User:alice"
client-id = "team-*"
producer_byte_rate = 1000
[[quota]]
user = "<default>"
producer_byte_rate = 1000
[[switch]]
target = "listener:edge"
mode = "off"
"""


def test_check_config_warns_of_names_that_mean_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check-config` warns of quotas for a pattern, a principal or "default", and of a switch of a listener that does not exist."""
    quotas, path = tmp_path / "quotas.toml", tmp_path / "sluice.toml"
    quotas.write_text(QUOTAS)
    path.write_text(GOOD + 'protocol = "sasl_plaintext"\n[quotas]\npath = "quotas.toml"\n')
    names = [
        'the quota of client-id = "default" is for a client with exactly this name; write "<default>" for clients without a quota of their own',
        'the quota of client-id = "team-*" is for a client with exactly this name; names are no patterns: declare a group ([[group]]) for several names',
        'the quota of user = "User:alice" names a principal; a quota names its user: "alice"',
    ]
    switch = 'the switch "listener:edge" has no effect: no listener has this name'
    advice = [f"{quotas}: {line}" for line in (*names, switch)]
    assert sluice(capsys, "check-config", str(path)) == (0, [f"{path}: valid (1 listener)", *advice], [])
    assert sluice(capsys, "check-config", str(quotas)) == (0, [f"{quotas}: valid (3 entities)", *advice[:3]], [])


def test_check_config_tries_the_principal_builder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check-config` refuses settings that the principal builder rejects."""
    path = tmp_path / "sluice.toml"
    builder = 'principal_builder = "examples.principals.networks:NetworkPrincipals"\n'
    path.write_text(GOOD + builder + '[listener.principal_builder_settings]\n"10.1.0.0/16" = "web"\n')
    assert sluice(capsys, "check-config", str(path))[0] == 0
    path.write_text(GOOD + builder + '[listener.principal_builder_settings]\n"nowhere" = "web"\n')
    code, out, (line,) = sluice(capsys, "check-config", str(path))
    assert (code, out) == (2, [])
    assert line == (
        f'sluice: {path}: listener.principal_builder: "examples.principals.networks:NetworkPrincipals" rejects its settings: ValueError: '
        "'nowhere' does not appear to be an IPv4 or IPv6 network; write the settings that the class expects"
    )


def test_check_config_says_that_all_is_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check-config` ends with exit code 0 for a valid configuration."""
    path = tmp_path / "sluice.toml"
    path.write_text(GOOD)
    assert sluice(capsys, "check-config", str(path)) == (0, [f"{path}: valid (1 listener)", f"{path}: {ADVICE}"], [])


def test_check_config_takes_a_quota_file_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check-config` also checks a file with nothing but quotas."""
    path = tmp_path / "quotas.toml"
    path.write_text('[[quota]]\nuser = "a"\nproducer_byte_rate = 1\n')
    assert sluice(capsys, "check-config", str(path)) == (0, [f"{path}: valid (1 entity)"], [])


def test_check_config_judges_the_quota_file_and_the_callback_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check-config` also checks the quota file and the callback that a configuration names."""
    path, quotas = tmp_path / "sluice.toml", tmp_path / "quotas.toml"
    path.write_text(GOOD + '[quotas]\npath = "quotas.toml"\n[callback]\nclass = "no_such_module_here:Class"\n')
    quotas.write_text('[[quota]]\nuser = "alice"\nproducer_byte_rate = 0\n')
    code, out, err = sluice(capsys, "check-config", str(path))
    assert (code, out) == (2, [])
    assert err == [
        f"sluice: {quotas}:3: quota[1].producer_byte_rate: 0 is not above 0; "
        'write bytes per second: a whole number of bytes, such as 1048576, "1MiB" or "10MB"',
        f'sluice: {path}:8: callback.class: "no_such_module_here:Class" cannot be imported: '
        f"ModuleNotFoundError: No module named 'no_such_module_here'; name a class whose module is in {tmp_path} or on PYTHONPATH",
    ]


@pytest.mark.parametrize(
    ("class_name", "line"),
    [
        ("json:loads", '"json:loads" is not a class; name a class'),
        ("json:Nope", "\"json:Nope\" cannot be imported: AttributeError: module 'json' has no attribute 'Nope'; name a class whose module is in {folder} or on PYTHONPATH"),
        (
            "collections:OrderedDict",
            '"collections:OrderedDict" has no quota_metric_tags, quota_limit, update_quota, remove_quota, quota_reset_required, '
            "update_cluster_metadata, close, configure; derive it from sluice.callback.ClientQuotaCallback",
        ),
    ],
)  # fmt: skip
def test_a_callback_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], class_name: str, line: str) -> None:
    """`check-config` refuses a name that is not a callback class."""
    path = tmp_path / "sluice.toml"
    path.write_text(f'{GOOD}[callback]\nclass = "{class_name}"\n')
    assert sluice(capsys, "check-config", str(path)) == (2, [], [f"sluice: {path}:6: callback.class: {line.format(folder=tmp_path)}"])


def test_a_callback_that_refuses_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`check-config` refuses settings that the callback rejects."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    path = tmp_path / "sluice.toml"
    path.write_text(GOOD + '[callback]\nclass = "examples.callbacks.tenants:TenantQuotas"\n')
    assert sluice(capsys, "check-config", str(path)) == (
        2,
        [],
        [
            f'sluice: {path}:5: callback.settings: "examples.callbacks.tenants:TenantQuotas" rejects its settings: '
            "KeyError: 'shared'; write the settings that the class expects"
        ],
    )


def test_a_callback_module_may_stand_in_the_current_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callback module is found in the current directory, as with `python -m`."""
    methods = [
        "quota_metric_tags",
        "quota_limit",
        "update_quota",
        "remove_quota",
        "quota_reset_required",
        "update_cluster_metadata",
        "close",
        "configure",
    ]
    (tmp_path / "sluice_test_tenants.py").write_text("class Mine:\n" + "".join(f"    def {name}(self, *_): ...\n" for name in methods))
    (tmp_path / "sluice.toml").write_text(GOOD + '[callback]\nclass = "sluice_test_tenants:Mine"\n')
    monkeypatch.chdir(tmp_path)
    assert sluice(capsys, "check-config", "sluice.toml") == (0, ["sluice.toml: valid (1 listener)", f"sluice.toml: {ADVICE}"], [])
