"""When Sluice tries its own login at a broker, and what it reports."""

from pathlib import Path
from typing import cast

import pytest

from protocol.errors import BadResponseError
from proxy.config.sections.login import Credentials
from proxy.net.upstream.own_login import REFRESH_INTERVAL_MS, RETRY_MS, OwnLogin
from sluice.broker_client import BrokerClient
from tests.support.frames import sasl_frames

CANARY = "canary-77b1"


class Broker:
    """A broker that accepts one password by PLAIN."""

    def __init__(self, password: str, *, handshake_error: int = 0) -> None:
        self.password = password
        self.handshake_error = handshake_error
        self.attempts = 0

    async def ask(self, frame: bytes) -> bytes:
        key, correlation_id = int.from_bytes(frame[4:6]), int.from_bytes(frame[8:12])
        if key == 17:
            self.attempts += 1
            return sasl_frames.handshake_answer(correlation_id, error_code=self.handshake_error)
        right = frame.endswith(f"\0sluice\0{self.password}".encode())
        return sasl_frames.authenticate_answer(correlation_id, error_code=0 if right else 58, message=None if right else "for sluice")

    @property
    def connection(self) -> BrokerClient:
        return cast("BrokerClient", self)


@pytest.fixture
def password(tmp_path: Path) -> Path:
    """Return the file with the password."""
    path = tmp_path / "password"
    write(path, CANARY)
    return path


def write(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


def login_with(password: Path, said: list[str | None]) -> OwnLogin:
    return OwnLogin(Credentials(mechanism="PLAIN", username="sluice", password_file=password), said.append)


async def test_a_wrong_password_is_reported_once_and_tried_seldom(password: Path) -> None:
    """A refused password is reported once and retried once a minute, and a changed password is tried at once."""
    said: list[str | None] = []
    login, broker = login_with(password, said), Broker("right")
    tries = [await login.may_ask(broker.connection, now) for now in (0, 5_000, RETRY_MS - 1, RETRY_MS)]
    assert (tries, broker.attempts, login.state) == ([False] * 4, 2, "refused")
    assert said == ["the broker refused PLAIN (error 58): check that the user exists and that the password is right"]
    write(password, "right")
    assert await login.may_ask(broker.connection, RETRY_MS + 1)
    assert (login.state, login.problem, said[1:]) == ("works", None, [None])
    assert not await login.may_ask(broker.connection, RETRY_MS + REFRESH_INTERVAL_MS)
    assert await login.may_ask(broker.connection, RETRY_MS + REFRESH_INTERVAL_MS + 1)
    assert broker.attempts == 4


async def test_a_secret_that_cannot_be_read_is_reported_once(password: Path) -> None:
    """A secret that cannot be read is reported once, and nothing is sent."""
    said: list[str | None] = []
    login, broker = login_with(password, said), Broker("right")
    write(password, CANARY, 0o644)
    for now in (0, 1):
        assert not await login.may_ask(broker.connection, now)
    assert (login.state, broker.attempts) == ("unreadable", 0)
    assert said == [f"password_file: {password} is accessible to all users (mode 0644); chmod 600 it"]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (33, "the broker does not support PLAIN; it supports PLAIN"),
        (34, "this listener of the broker accepts no login"),
        (7, "the broker refused the handshake (error 7)"),
    ],
)
async def test_brokers_that_take_no_such_login(password: Path, code: int, problem: str) -> None:
    """A broker that does not accept the mechanism is reported before a secret is sent."""
    said: list[str | None] = []
    assert not await login_with(password, said).may_ask(Broker("right", handshake_error=code).connection, 0)
    assert said == [problem]


async def test_an_answer_that_cannot_be_read_is_no_refusal(password: Path) -> None:
    """A malformed response raises `BadResponseError`."""

    class TruncatingBroker(Broker):
        async def ask(self, frame: bytes) -> bytes:
            return (await super().ask(frame))[:9]

    with pytest.raises(BadResponseError):
        await login_with(password, []).may_ask(TruncatingBroker("right").connection, 0)


async def test_without_an_account_the_brokers_judge() -> None:
    """Without an account the login is unneeded if the broker answers, and missing if it closes the connection."""
    login = OwnLogin(None, lambda _: None)
    assert (login.state, await login.may_ask(Broker("").connection, 0)) == ("missing", True)
    login.answered()
    assert login.state == "unneeded"
    login.closed_by_broker()
    assert login.state == "missing"
