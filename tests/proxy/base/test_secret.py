"""A secret is not printed by accident."""

import json
import pickle

import msgspec
import pytest

from proxy.base.secret import Secret

CANARY = "canary-77b1"


def test_a_secret_shows_nothing_of_itself() -> None:
    """A secret prints as `***`, cannot be serialized, and is returned by `reveal`."""
    secret = Secret(CANARY)
    for shown in (str(secret), repr(secret), f"{secret}", f"{[secret]}", f"{secret!s:>40}", json.dumps({"x": secret}, default=str)):
        assert CANARY not in shown
        assert "***" in shown
    with pytest.raises(TypeError):
        json.dumps(secret)
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert secret.reveal() == CANARY


def test_secrets_are_compared_by_what_they_hold() -> None:
    """Two secrets are equal if their values are equal."""
    assert Secret(CANARY) == Secret(CANARY)
    assert Secret(CANARY) != Secret(CANARY + "2")
    assert Secret(CANARY) != CANARY
