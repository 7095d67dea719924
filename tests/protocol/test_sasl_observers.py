"""Observers name the user that the broker names, or none, and none before the broker has accepted."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.sasl import Progress, observer_of
from protocol.sasl.claim import VALUES_MAX, read_claim
from protocol.sasl.opaque import is_gssapi_token
from tests.support.tls import sasl_tokens as tokens

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"]
ANSWERS = [b"", b"r=abc,s=c2FsdA==,i=4096", b"v=c2ln", b"e=other-error", b'{"status":"invalid_token"}', b"\x01", b"v", b"r"]


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
@pytest.mark.parametrize(("mechanism", "token", "name"), tokens.valid_tokens())
def test_valid_tokens(mechanism: str, token: bytes, name: str, buffer: type[bytes | bytearray | memoryview]) -> None:
    """The name in a valid token is the one that the broker reads."""
    observer = observer_of(mechanism)
    observer.sent(buffer(token))
    assert (observer.name, observer.is_delegation_token) == (name, False)


@pytest.mark.parametrize(("mechanism", "token"), tokens.dubious_tokens())
def test_dubious_tokens(mechanism: str, token: bytes) -> None:
    """A token that a broker refuses, or that brokers may read differently, names no user."""
    observer = observer_of(mechanism)
    observer.sent(token)
    assert observer.name is None


@pytest.mark.parametrize("extra", [",tokenauth=true", ",tokenauth=TRUE", ",k=v,tokenauth=True", ",tokenauth=true,tokenauth=false"])
def test_delegation_tokens(extra: str) -> None:
    """A delegation token names a token id, whose owner only the broker knows."""
    observer = observer_of("SCRAM-SHA-256")
    observer.sent(tokens.scram_first("tokenid", extra=extra))
    assert (observer.name, observer.is_delegation_token) == ("tokenid", True)


@pytest.mark.parametrize(
    ("mechanism", "steps"),
    [
        ("PLAIN", [(tokens.plain("a"), b"", Progress.SUCCEEDED)]),
        ("PLAIN", [(tokens.plain("a"), b"x", Progress.GOES_ON)]),
        ("SCRAM-SHA-256", [(tokens.scram_first("a"), b"r=x,s=y,i=1", Progress.GOES_ON), (b"c=biws,r=x,p=z", b"v=s", Progress.SUCCEEDED)]),
        ("SCRAM-SHA-256", [(tokens.scram_first("a"), b"v=s", Progress.GOES_ON)]),
        ("SCRAM-SHA-256", [(tokens.scram_first("a"), b"r=x", Progress.GOES_ON), (b"c=biws", b"e=no", Progress.GOES_ON)]),
        ("SCRAM-SHA-256", [(tokens.scram_first("a"), b"", Progress.GOES_ON), (b"c=biws", b"v=s", Progress.GOES_ON)]),
        ("OAUTHBEARER", [(tokens.bearer(tokens.jwt(tokens.claims("a"))), b"", Progress.SUCCEEDED)]),
        ("OAUTHBEARER", [(tokens.bearer("x"), b'{"status":"invalid_token"}', Progress.GOES_ON), (b"\x01", b"", Progress.GOES_ON)]),
        ("GSSAPI", [(b"\x60\x82", b"\x60", Progress.UNDETERMINED), (b"", b"\x05\x04", Progress.UNDETERMINED)]),
        ("AWS_MSK_IAM", [(b"{}", b"{}", Progress.UNDETERMINED)]),
    ],
)
def test_success_marks(mechanism: str, steps: list[tuple[bytes, bytes, Progress]]) -> None:
    """An answer without an error is a success only if the mechanism's own success mark is in it."""
    observer = observer_of(mechanism)
    for sent, answer, progress in steps:
        observer.sent(sent)
        assert observer.answered(answer) is progress


@settings(max_examples=200, deadline=None)
@given(
    mechanism=st.sampled_from(MECHANISMS),
    seed=st.integers(0, 2**32),
    steps=st.lists(st.tuples(st.binary(max_size=60), st.sampled_from(ANSWERS) | st.binary(max_size=20)), max_size=4),
)
def test_no_exchange_raises(mechanism: str, seed: int, steps: list[tuple[bytes, bytes]]) -> None:
    """No exchange raises, a name is a text of at most 1 KiB, and a third token names no user."""
    dice = random.Random(seed)
    observer = observer_of(mechanism)
    first = tokens.mutated(dice.choice(tokens.valid_tokens())[1], dice)
    for sent, answer in [(first, b"r=x"), *steps]:
        observer.sent(sent)
        assert isinstance(observer.answered(answer), Progress)
        assert observer.name is None or 0 < len(observer.name.encode()) <= 1_024
    if len(steps) > 1:
        assert observer.name is None


@settings(max_examples=200, deadline=None)
@given(mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"]), seed=st.integers(0, 2**32), password=st.text(min_size=6))
def test_no_observer_keeps_a_token(mechanism: str, seed: int, password: str) -> None:
    """An observer keeps the name of a token and no other part of it."""
    dice = random.Random(seed)
    observer = observer_of(mechanism)
    observer.sent(tokens.mutated(tokens.plain("alice", "canary" + password), dice))
    kept = [getattr(observer, slot) for kind in type(observer).__mro__ for slot in getattr(kind, "__slots__", ())]
    assert {type(value) for value in kept} <= {str, bool, int, type(None)}
    assert all(value in (observer.name, "sub") for value in kept if isinstance(value, str))


def test_tokens_beyond_16_kib_name_no_user() -> None:
    """A token above 16 KiB names no user and raises nothing."""
    for length, name in ((16 * 1024 - 4, "bob"), (16 * 1024, None)):
        observer = observer_of("PLAIN")
        observer.sent(tokens.plain("bob", "x" * (length - 5 + 4 if name else length)))
        assert observer.name == name


@pytest.mark.parametrize(("values", "name"), [(VALUES_MAX - 3, "alice"), (VALUES_MAX - 2, None), (5_000, None)])
def test_claims_with_too_many_values_name_no_user(values: int, name: str | None) -> None:
    """A token with more keys and values than the limit names no user; all keys, values and array elements count."""
    payload = b'{"sub":"alice","x":[' + b",".join([b"1"] * values) + b"]}"
    assert read_claim(payload, "sub") == name


@pytest.mark.parametrize(
    ("beginning", "expected"),
    [
        (b"", True),
        (b"\x60\x82\x01", True),
        (b"\x05\x04\x04\xff", True),
        (b"\x04\x04", True),
        (b"\x00\x12\x00\x03", False),
        (b"\x05", False),
    ],
)
def test_gssapi_tokens_are_distinguished_from_requests(beginning: bytes, expected: bool) -> None:
    """A GSSAPI token is recognised by its first bytes, which are the key of no API."""
    assert is_gssapi_token(beginning) is expected
