"""SASL DIGEST-MD5 as ZooKeeper uses it, checked against a second computation of RFC 2831."""

from hashlib import md5

import pytest

from proxy.quota_store.zookeeper.login import DigestLogin, LoginError

CHALLENGE = b'realm="zk-sasl-md5",nonce="abc\\"d",charset=utf-8,algorithm=md5-sess'


def hashed(text: bytes) -> bytes:
    return md5(text, usedforsecurity=False).digest()


def expected(user: bytes, said: bytes, method: bytes) -> bytes:
    """Return the response value of RFC 2831, 2.1.2.1."""
    a1 = hashed(user + b":zk-sasl-md5:" + said) + b':abc"d:mine'
    a2 = method + b":zookeeper/zk-sasl-md5"
    whole = hashed(a1).hex().encode() + b':abc"d:00000001:mine:auth:' + hashed(a2).hex().encode()
    return hashed(whole).hex().encode()


def login(user: str = "sluice", said: str = "x=1, y") -> DigestLogin:
    return DigestLogin(user, said, lambda: "mine")


def test_a_challenge_is_answered() -> None:
    """The response has all parts of RFC 2831, and the server's proof is accepted."""
    one = login()
    parts = [
        b"charset=utf-8",
        b'username="sluice"',
        b'realm="zk-sasl-md5"',
        b'nonce="abc\\"d"',
        b'cnonce="mine"',
        b'digest-uri="zookeeper/zk-sasl-md5"',
        b"nc=00000001",
        b"qop=auth",
        b"response=" + expected(b"sluice", b"x=1, y", b"AUTHENTICATE"),
    ]
    assert one.answer(CHALLENGE) == b",".join(parts)
    one.check(b"rspauth=" + expected(b"sluice", b"x=1, y", b""))


def test_letters_beyond_ascii() -> None:
    """Names are sent as UTF-8 and hashed as ISO 8859-1 where possible."""
    answer = login('jür"g').answer(CHALLENGE)
    assert 'username="jür\\"g"'.encode() in answer
    assert expected('jür"g'.encode("iso-8859-1"), b"x=1, y", b"AUTHENTICATE") in answer
    assert expected("жук".encode(), b"x=1, y", b"AUTHENTICATE") in login("жук").answer(CHALLENGE)


@pytest.mark.parametrize(
    "challenge",
    [b"", b"realm=x", b'nonce="a",algorithm=md5', b'nonce="a",algorithm=md5-sess,qop="auth-conf"', b"\xff" * 100, b'nonce="' + b"\\" * 99],
)
def test_what_is_no_challenge_is_not_answered(challenge: bytes) -> None:
    """An invalid or unsupported challenge is refused."""
    with pytest.raises(LoginError, match="DIGEST-MD5"):
        login().answer(challenge)


@pytest.mark.parametrize("proof", [b"", b"rspauth=", b"rspauth=" + b"0" * 32, b"x"])
def test_a_server_that_does_not_know_the_password(proof: bytes) -> None:
    """A server without the right proof is refused."""
    one = login()
    with pytest.raises(LoginError, match="prove"):
        one.check(proof)
    one.answer(CHALLENGE)
    with pytest.raises(LoginError, match="prove"):
        one.check(proof)


def test_a_nonce_of_ones_own() -> None:
    """Two logins use different client nonces."""
    assert DigestLogin("a", "b").answer(CHALLENGE) != DigestLogin("a", "b").answer(CHALLENGE)
