"""The proxy's own SASL logins send standard tokens and require brokers to prove that they know the password."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.sasl import Progress, observer_of
from protocol.sasl.client import SCRAM_ITERATIONS_MAX, BearerClient, PlainClient, ScramClient, TokenRefusedError, client_of

NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
PROOF = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
names = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), min_size=1, max_size=20)


def scram() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_scram_as_the_standard_has_it() -> None:
    """The SCRAM exchange equals that of RFC 7677, token by token."""
    client = scram()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.answer(CHALLENGE) == FINAL
    assert client.answer(PROOF) is None


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        pytest.param(b"e=unknown-user", "cannot be read", id="error"),
        pytest.param(b"r=somebodyelse,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "cannot be read", id="nonce-of-another"),
        pytest.param(b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "cannot be read", id="nonce-without-the-brokers-part"),
        pytest.param(CHALLENGE.replace(b"4096", b"1"), "asks for 1 SCRAM iterations", id="too-easy-to-guess"),
        pytest.param(CHALLENGE.replace(b"4096", b"%d" % (SCRAM_ITERATIONS_MAX + 1)), "SCRAM iterations", id="endless-work"),
        pytest.param(CHALLENGE.replace(b"W22ZaJ0SNY7soEsUEjb6gQ==", b"W=="), "cannot be read", id="salt"),
    ],
)
def test_challenges_that_are_none(token: bytes, problem: str) -> None:
    """A SCRAM challenge that is invalid, or asks for too few or too many iterations, ends the login with an error."""
    with pytest.raises(TokenRefusedError, match=problem):
        scram().answer(token)


@pytest.mark.parametrize("token", [b"", b"v=", b"e=invalid-proof", PROOF[:-2] + b"8=", b"v=AAAA", PROOF[2:], b"v=A"])
def test_a_broker_that_does_not_know_the_password(token: bytes) -> None:
    """A SCRAM login without the right signature of the broker fails."""
    client = scram()
    client.answer(CHALLENGE)
    with pytest.raises(TokenRefusedError):
        client.answer(token)


@pytest.mark.parametrize("client", [PlainClient("user", "pencil"), BearerClient("a.b.c")])
def test_one_token_is_answered_by_nothing(client: PlainClient | BearerClient) -> None:
    """A PLAIN or OAUTHBEARER login ends with an empty token, and JSON in it is an error."""
    assert client.answer(b"") is None
    with pytest.raises(TokenRefusedError):
        client.answer(b'{"status":"invalid_token"}')


@given(username=names, password=names)
def test_what_is_sent_names_the_user(username: str, password: str) -> None:
    """The observer of each mechanism reads exactly the user name from the client's first token."""
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512") if username.isascii() else ("PLAIN",):
        observer = observer_of(mechanism)
        observer.sent(client_of(mechanism, username, password, NONCE).first())
        assert observer.name == username
    claims = base64.urlsafe_b64encode(b'{"sub":"etl"}').decode().rstrip("=")
    observer = observer_of("OAUTHBEARER")
    observer.sent(client_of("OAUTHBEARER", "", f"e30.{claims}.", NONCE).first())
    assert (observer.name, observer.answered(b"")) == ("etl", Progress.SUCCEEDED)
