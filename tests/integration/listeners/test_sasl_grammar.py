"""The SASL observers and Kafka's own classes read the same user from a token."""

import base64
import random
import re
from pathlib import Path

import pytest

from protocol.sasl import observer_of
from tests.support.kafka.jars import KRAFT, ZOOKEEPER
from tests.support.kafka.java_tools import JavaTools
from tests.support.tls import sasl_tokens as tokens

MUTATED = 2_000
SEED = 20_261_121

pytestmark = pytest.mark.kafka
DIGITS_OF_URLS = re.compile(rb"\.[^.]*[-_]")
"""Kafka 3.9 takes an unsecured token's claims for common base64 and refuses what only the other form has."""


def changed_tokens(dice: random.Random) -> list[tuple[str, bytes]]:
    """Return valid tokens with small changes."""
    valid = tokens.valid_tokens()
    found = [(mechanism, tokens.mutated(token, dice)) for mechanism, token, _ in dice.choices(valid, k=MUTATED)]
    return found + [("OAUTHBEARER", tokens.mutated_claims(dice)) for _ in range(MUTATED // 4)]


def said_by_kafka(cases: list[tuple[str, bytes]], file: Path, version: str) -> list[str | None]:
    """Return the user that Kafka's classes read; "token" where they would look up the owner of a delegation token."""
    file.write_text("".join(f"{mechanism} {base64.b64encode(token).decode()}\n" for mechanism, token in cases))
    with JavaTools(version) as java:
        lines = java.run("SaslGrammar", str(file)).out.split("\n")[:-1]
    assert len(lines) == len(cases)
    return [None if line == "-" else line if line == "token" else base64.b64decode(line.rstrip("=") + "===").decode() for line in lines]


def said_by_us(mechanism: str, token: bytes) -> str | None:
    """Return the user that an observer reads."""
    observer = observer_of(mechanism)
    observer.sent(token)
    return "token" if observer.is_delegation_token and observer.name else observer.name


def agrees(mechanism: str, ours: str | None, theirs: str | None) -> bool:
    """Return whether the observer is right or names no user.

    A bearer token that Kafka refuses counts as a wrong password: expired, or unsigned.
    """
    return ours in (None, theirs) or (mechanism == "OAUTHBEARER" and theirs is None)


@pytest.mark.parametrize("version", [KRAFT, ZOOKEEPER])
def test_observers_agree_with_the_broker(version: str, tmp_path: Path) -> None:
    """An observer reads the user that Kafka reads from a valid token; from a changed one it reads the same user or none."""
    valid = [
        case for case in tokens.valid_tokens() if version == KRAFT or not (case[0] == "OAUTHBEARER" and DIGITS_OF_URLS.search(case[1]))
    ]
    cases = [(mechanism, token) for mechanism, token, _ in valid] + tokens.dubious_tokens() + changed_tokens(random.Random(SEED))
    reported = said_by_kafka(cases, tmp_path / "tokens", version)
    assert reported[: len(valid)] == [name for *_, name in valid]
    wrong = [
        (case, ours, theirs) for case, theirs in zip(cases, reported, strict=True) if not agrees(case[0], ours := said_by_us(*case), theirs)
    ]
    assert not wrong
    named = sum(one is not None for one in reported)
    read = sum(said_by_us(*case) is not None for case in cases)
    print(f"{len(cases)} tokens, seed {SEED}: Kafka {version} names a user in {named}, the observers in {read} of them")
    assert read >= 0.9 * named > 0
