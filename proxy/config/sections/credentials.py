"""A certificate, its key and trusted authorities: read, checked, made into a TLS context."""

from __future__ import annotations

import hashlib
import os
import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

ClientAuth = Literal["none", "requested", "required"]

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"  # for TLS 1.2; all of TLS 1.3 are secure
_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_SERVER_NAME: Final = "sluice_server_name"


class CredentialsError(ValueError):
    """A file that cannot be used.

    Attributes:
        key: the setting with the file's name.
        problem: what is wrong.
        remedy: what to change.
    """

    def __init__(self, key: str, problem: str, remedy: str) -> None:
        super().__init__(f"{key}: {problem}; {remedy}")
        self.key = key
        self.problem = problem
        self.remedy = remedy


_READABLE: Final = "name a file that Sluice may read"


class TlsFiles(NamedTuple):
    """The files of a context; each name is that of its setting."""

    certificate: Path | None = None
    key: Path | None = None
    key_password_file: Path | None = None
    ca: Path | None = None

    def digest(self) -> bytes:
        """Return a digest of the contents of the files; an unreadable file counts as empty."""
        digest = hashlib.sha256()
        for path in filter(None, self):
            try:
                contents = path.read_bytes()
            except OSError:
                contents = b""
            digest.update(len(contents).to_bytes(8) + contents)
        return digest.digest()


def server_context(files: TlsFiles, client_auth: ClientAuth, now_s: float) -> ssl.SSLContext:
    """Return the context of a listener; `now_s` is the wall-clock time.

    Raises:
        CredentialsError: a file is missing, unreadable, readable by others, expired or inconsistent with the others.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    context.num_tickets = 0  # a client that never reads them and closes would send RST instead of FIN, and lose data in flight
    context.sni_callback = _note_server_name
    _load_own(context, files, now_s)
    context.verify_mode = _VERIFY[client_auth]
    if files.ca is not None:
        _load_authorities(context, files.ca)
    return context


def client_context(files: TlsFiles, *, verify: bool, now_s: float, kind: type[ssl.SSLContext] = ssl.SSLContext) -> ssl.SSLContext:
    """Return the context for brokers, of class `kind`; without `ca` the system's authorities are trusted.

    Raises:
        CredentialsError: as for a listener.
    """
    context = kind(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif files.ca is not None:
        _load_authorities(context, files.ca)
    else:
        context.load_default_certs()
    if files.certificate is not None:
        _load_own(context, files, now_s)
    return context


def server_name_of(tls: ssl.SSLObject) -> str | None:
    """Return the host name that a listener's client requested (SNI)."""
    return getattr(tls, _SERVER_NAME, None)


def _note_server_name(tls: ssl.SSLSocket | ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
    """Store the name: OpenSSL reports it once, in the handshake."""
    setattr(tls, _SERVER_NAME, name)


def expires_at_s(certificate: Path) -> float:
    """Return when the first certificate of a file expires, in seconds of wall-clock time.

    Raises:
        CredentialsError: the file has no readable certificate.
    """
    return _read_certificate(certificate).not_valid_after_utc.timestamp()


def host_names_of(certificate: Path) -> list[str]:
    """Return the host names of the first certificate of a file, in lower case.

    Raises:
        CredentialsError: the file has no readable certificate.
    """
    from cryptography import x509  # imported here and below, since only certificates need it

    try:
        names = _read_certificate(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [name.lower() for name in names.get_values_for_type(x509.DNSName)]


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION


def _load_own(context: ssl.SSLContext, files: TlsFiles, now_s: float) -> None:
    assert files.certificate is not None
    certificate = _read_certificate(files.certificate)
    now = datetime.fromtimestamp(now_s, UTC)
    if now >= certificate.not_valid_after_utc:
        raise CredentialsError("certificate", f"{files.certificate} ended on {certificate.not_valid_after_utc:%Y-%m-%d}", "renew it")
    if now < certificate.not_valid_before_utc:
        begin = f"{certificate.not_valid_before_utc:%Y-%m-%d}"
        raise CredentialsError("certificate", f"{files.certificate} is valid from {begin} on only", "use one that is valid today")
    if files.key is not None:
        _check_secret("key", files.key)
    password = None if files.key_password_file is None else read_secret("key_password_file", files.key_password_file)
    try:
        # a function, so that OpenSSL does not ask at the terminal for the password of a key
        context.load_cert_chain(files.certificate, files.key, lambda: password or b"")
    except ssl.SSLError as error:
        raise CredentialsError("key", *_key_problem(files, error)) from error
    except OSError as error:
        raise CredentialsError("key", f"{files.key or files.certificate} cannot be read: {error.strerror}", _READABLE) from error


def _key_problem(files: TlsFiles, error: ssl.SSLError) -> tuple[str, str]:
    path = files.key or files.certificate
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{path} is not the key of {files.certificate}", "name the two that belong together"
    if path is not None and b"ENCRYPTED" in path.read_bytes():
        return f"{path} needs a password, or another one", "put it into a file and name that in key_password_file"
    return f"{path} contains no PEM private key for {files.certificate}", "name the certificate's key"


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise CredentialsError("ca", f"{path} contains no PEM certificates", "name the certificates of the authorities to trust") from error
    except OSError as error:
        raise CredentialsError("ca", f"{path} cannot be read: {error.strerror}", _READABLE) from error


def _read_certificate(path: Path) -> Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(path.read_bytes())[0]
    except OSError as error:
        raise CredentialsError("certificate", f"{path} cannot be read: {error.strerror}", _READABLE) from error
    except ValueError as error:
        raise CredentialsError(
            "certificate", f"{path} contains no PEM certificate", "name one, with those between it and its root"
        ) from error


def _check_secret(key: str, path: Path) -> None:
    """Refuse a secret that others than its owner may access. Its group may read it if Sluice is in it, as with secrets of Kubernetes."""
    try:
        found = path.stat()
    except OSError as error:
        raise CredentialsError(key, f"{path} cannot be read: {error.strerror}", _READABLE) from error
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IRWXO:
        raise CredentialsError(key, f"{path} is accessible to all users (mode {mode:04o})", "chmod 600 it")
    if mode & (stat.S_IWGRP | stat.S_IXGRP):
        raise CredentialsError(key, f"{path} is writable or executable for its group (mode {mode:04o})", "chmod 600 it")
    if mode & stat.S_IRGRP and found.st_gid not in {os.getegid(), *os.getgroups()}:
        problem = f"{path} is readable for group {found.st_gid}, which Sluice is not in (mode {mode:04o})"
        raise CredentialsError(key, problem, "chmod 600 it, or run Sluice with this group (in Kubernetes: fsGroup)")
    if not os.access(path, os.R_OK):
        raise CredentialsError(key, f"{path} cannot be read: permission denied", _READABLE)


def read_secret(key: str, path: Path) -> bytes:
    """Return the content of a file that only Sluice may read, without the line end; `key` is the setting with its name.

    Raises:
        CredentialsError: it is missing, unreadable or readable by others.
    """
    _check_secret(key, path)
    try:
        return path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise CredentialsError(key, f"{path} cannot be read: {error.strerror}", _READABLE) from error
