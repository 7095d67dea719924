"""`[upstream.credentials]` and `[canary]`: Sluice's own logins at brokers. Secrets are in files or the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from protocol.limits import MAX_PRINCIPAL_BYTES
from protocol.sasl.mechanisms import CLEAR, OAUTHBEARER, PLAIN
from proxy.base.secret import Secret
from proxy.config.sections.credentials import CredentialsError, read_secret
from proxy.config.toml_reader import Place, Reader
from proxy.config.values import read_path

SECRET_BYTES_MAX: Final = 64 * 1024
"""Tokens of some identity providers are long; a longer file is not a token."""

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def _read_username(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value.encode(errors="replace")) <= MAX_PRINCIPAL_BYTES or not value.isprintable():
        raise ValueError("is not the name of a user")
    return value


def _read_variable(value: object) -> str:
    if not isinstance(value, str) or _VARIABLE.fullmatch(value) is None:
        raise ValueError("is not the name of an environment variable")
    return value


_File = Annotated[Path | None, Reader(read_path, "the path of a file that only its owner may read")]


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """One account of Sluice's own. Files are read for every login, so a new password or token needs no reload."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    username: Annotated[str | None, Reader(_read_username, "the name of a user")] = None
    """None with OAUTHBEARER, where the token contains the user."""
    password_file: _File = None
    password_env: Annotated[str | None, Reader(_read_variable, "the name of an environment variable")] = None
    """The environment variable with the password, in place of a file."""
    token_file: _File = None
    """With OAUTHBEARER."""
    insecure_plain: bool = False
    """Whether a password or token may cross a network without TLS."""

    def secret(self) -> Secret:
        """Return the current password or token.

        Raises:
            CredentialsError: it cannot be read; the text contains nothing of it.
        """
        if self.password_env is not None:
            return Secret(_from_environment(self.password_env))
        key = "password_file" if self.token_file is None else "token_file"
        path = self.password_file or self.token_file
        assert path is not None
        return Secret(_text_of(key, str(path), read_secret(key, path)))


def _from_environment(name: str) -> str:
    password = os.environ.get(name, "")
    if not password:
        raise CredentialsError("password_env", f"{name} is not set in the environment", "set it, or name a file in password_file")
    return _text_of("password_env", name, os.fsencode(password))


def _text_of(key: str, where: str, secret: bytes) -> str:
    if not secret:
        raise CredentialsError(key, f"{where} is empty", "write the secret into it")
    if len(secret) > SECRET_BYTES_MAX:
        raise CredentialsError(key, f"{where} is larger than {SECRET_BYTES_MAX} bytes", "name a file with nothing else in it")
    try:
        text = secret.decode("utf-8")
    except UnicodeDecodeError:
        raise CredentialsError(key, f"{where} is not UTF-8", "save it as UTF-8") from None
    if any(sign in text for sign in "\0\x01\n"):
        raise CredentialsError(key, f"{where} contains more than one line", "write the secret, and nothing else, into it")
    return text


def check_credentials(upstreams: Sequence[tuple[str, Any]], canary: Credentials | None, place: Place) -> None:
    """Report contradictions in Sluice's own logins; the canary is used at the first upstream."""
    for key, upstream in upstreams:
        if upstream.credentials is not None:
            _check_parts(f"{key}.credentials", upstream.credentials, place)
            _check_exposed(f"{key}.credentials", upstream.credentials, upstream, place)
    if canary is None:
        return
    _check_parts("canary", canary, place)
    if upstreams:
        _check_exposed("canary", canary, upstreams[0][1], place)
    others = [upstream.credentials for _, upstream in upstreams if upstream.credentials is not None]
    if any((one.username, one.token_file) == (canary.username, canary.token_file) for one in others):
        place.add("canary.username", "is the account of upstream.credentials too", "name one that has no rights at all")


def _check_parts(key: str, one: Credentials, place: Place) -> None:
    if one.mechanism == OAUTHBEARER:
        if one.token_file is None:
            place.add(f"{key}.token_file", "is missing with OAUTHBEARER", "name the file with the token")
        for name in ("username", "password_file", "password_env"):
            if getattr(one, name) is not None:
                place.add(f"{key}.{name}", "has no effect with OAUTHBEARER, where the token names the user", "leave it out")
        return
    if one.username is None:
        place.add(f"{key}.username", f"is missing with {one.mechanism}", "write the name of the user")
    elif one.mechanism != PLAIN and not one.username.isascii():
        place.add(
            f"{key}.username", "has letters beyond ASCII, which Kafka's SCRAM does not accept", "name a user without them, or write PLAIN"
        )
    if one.token_file is not None:
        place.add(f"{key}.token_file", f"has no effect with {one.mechanism}", "write password_file")
    if one.password_file is None and one.password_env is None:
        place.add(f"{key}.password_file", f"is missing with {one.mechanism}", "name the file with the password, or write password_env")
    if one.password_file is not None and one.password_env is not None:
        place.add(f"{key}.password_env", "has no effect beside password_file", "write one of the two")


def _check_exposed(key: str, one: Credentials, upstream: Any, place: Place) -> None:
    is_safe = upstream.uses_tls or all(address.is_loopback for address in upstream.bootstrap)
    if one.mechanism in CLEAR and not one.insecure_plain and not is_safe:
        place.add(
            f"{key}.mechanism",
            f"{one.mechanism} without TLS lets a {'token' if one.mechanism == OAUTHBEARER else 'password'} cross the network in the clear",
            "write [upstream.tls], SCRAM-SHA-512, or insecure_plain = true where the network is trusted",
        )


def check_secrets(logins: Iterable[tuple[str, Credentials | None]], place: Place) -> None:
    """Report secrets that cannot be read."""
    for key, one in logins:
        if one is None:
            continue
        try:
            one.secret()
        except CredentialsError as error:
            place.add(f"{key}.{error.key}", error.problem, error.remedy)
