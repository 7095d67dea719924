"""Certificates and keys are read from files and checked."""

import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from proxy.config.sections.credentials import CredentialsError, TlsFiles, client_context, expires_at_s, read_secret, server_context
from proxy.tls.keeper import ContextKeeper
from tests.support.tls.certificates import Authority

NOW_S = time.time()
DAY_S = 86_400


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Return a certificate authority."""
    return Authority(tmp_path)


def files_of(authority: Authority, name: str = "server", **options: float) -> TlsFiles:
    """Return a certificate and its key as settings."""
    issued = authority.issue(name, **options)
    return TlsFiles(issued.certificate, issued.key)


def test_a_server_context_is_hard(authority: Authority) -> None:
    """A server context requires TLS 1.2 and forward secrecy, and allows no tickets, renegotiation or compression."""
    context = server_context(files_of(authority), "none", NOW_S)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.num_tickets == 0
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert all("ECDHE" in cipher["name"] or cipher["protocol"] == "TLSv1.3" for cipher in context.get_ciphers())
    assert all("GCM" in cipher["name"] or "CHACHA20" in cipher["name"] for cipher in context.get_ciphers())


def test_brokers_are_verified_unless_it_is_said_otherwise(authority: Authority) -> None:
    """A client context verifies the name and the authority of brokers unless `verify=False` is set."""
    context = client_context(TlsFiles(ca=authority.file), verify=True, now_s=NOW_S)
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert client_context(TlsFiles(), verify=False, now_s=NOW_S).verify_mode == ssl.CERT_NONE


def _missing(files: TlsFiles) -> TlsFiles:
    return files._replace(certificate=Path("absent.crt"))


def _missing_key(files: TlsFiles) -> TlsFiles:
    return files._replace(key=Path("absent.key"))


def _open_key(files: TlsFiles) -> TlsFiles:
    assert files.key
    files.key.chmod(0o660)
    return files


def _no_certificate(files: TlsFiles) -> TlsFiles:
    assert files.certificate
    files.certificate.write_text("rubbish")
    return files


def _no_key(files: TlsFiles) -> TlsFiles:
    assert files.key
    files.key.write_text("rubbish")
    return files


def _no_authority(files: TlsFiles) -> TlsFiles:
    assert files.certificate
    ca = files.certificate.with_name("ca.pem")
    ca.write_text("rubbish")
    return files._replace(ca=ca)


def _locked_key(files: TlsFiles) -> TlsFiles:
    assert files.key
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"pass")
    files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))
    return files


@pytest.mark.parametrize(
    ("spoil", "key", "words"),
    [
        (_missing, "certificate", "absent.crt cannot be read: No such file"),
        (_missing_key, "key", "absent.key cannot be read: No such file"),
        (_open_key, "key", "is writable or executable for its group (mode 0660); chmod 600 it"),
        (_no_certificate, "certificate", "contains no PEM certificate"),
        (_no_key, "key", "contains no PEM private key"),
        (_no_authority, "ca", "contains no PEM certificates"),
        (_locked_key, "key", "name that in key_password_file"),
    ],
)
def test_what_cannot_be_used_is_named(authority: Authority, spoil: Callable[[TlsFiles], TlsFiles], key: str, words: str) -> None:
    """An unusable file is refused with an error that names the setting, the file and the problem."""
    with pytest.raises(CredentialsError) as caught:
        server_context(spoil(files_of(authority)), "none", NOW_S)
    assert caught.value.key == key
    assert words in str(caught.value)


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    """A key that does not belong to the certificate is refused."""
    mixed = files_of(authority)._replace(key=files_of(authority, "other").key)
    with pytest.raises(CredentialsError, match=r"other\.key is not the key of .*server\.crt"):
        server_context(mixed, "none", NOW_S)


@pytest.mark.parametrize(("days", "words"), [(31, "ended on"), (-2, "is valid from")])
def test_a_certificate_out_of_its_time_is_refused(authority: Authority, days: int, words: str) -> None:
    """A certificate that has expired or is not yet valid is refused."""
    with pytest.raises(CredentialsError, match=words):
        server_context(files_of(authority), "none", NOW_S + days * DAY_S)


def test_a_password_comes_from_a_file(authority: Authority, tmp_path: Path) -> None:
    """An encrypted key is opened with the password of a file, whose line end is ignored."""
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text("pass\n")
    server_context(_locked_key(files_of(authority))._replace(key_password_file=password), "none", NOW_S)


def test_new_files_make_a_new_context_and_bad_ones_keep_the_old(authority: Authority) -> None:
    """New files are loaded, and a file that cannot be used is reported once while the old context stays."""
    files = files_of(authority)
    keeper = ContextKeeper("here", files, lambda these: server_context(these, "none", NOW_S))
    first = keeper.context
    assert not keeper.refresh()
    _no_certificate(files)
    with pytest.raises(CredentialsError):
        keeper.refresh()
    assert not keeper.refresh()
    assert keeper.context is first
    files_of(authority, days=3)
    assert keeper.refresh()
    assert keeper.context is not first
    assert files.certificate
    assert keeper.expires_at_s == expires_at_s(files.certificate)
    assert NOW_S + 2.9 * DAY_S < keeper.expires_at_s < NOW_S + 3.1 * DAY_S


def test_a_secret_of_a_group_that_sluice_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that its group may read, as Kubernetes mounts it, is accepted from a process in that group, and from no other."""
    path = tmp_path / "secret"
    path.write_bytes(b"geheim\n")
    path.chmod(0o440)
    monkeypatch.setattr(os, "getegid", lambda: path.stat().st_gid + 1)
    monkeypatch.setattr(os, "getgroups", lambda: [path.stat().st_gid])
    assert read_secret("password_file", path) == b"geheim"
    monkeypatch.setattr(os, "getgroups", list)
    with pytest.raises(CredentialsError) as caught:
        read_secret("password_file", path)
    assert caught.value.problem == f"{path} is readable for group {path.stat().st_gid}, which Sluice is not in (mode 0440)"
    assert "fsGroup" in caught.value.remedy
