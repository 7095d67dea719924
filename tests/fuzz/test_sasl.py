"""On any tokens a SASL observer raises nothing, allocates little and reports no wrong user."""

import random
import time
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.sasl import Progress, observer_of
from tests.support.tls import sasl_tokens as tokens

CORPUS = {
    "PLAIN": [token for mechanism, token, _ in tokens.valid_tokens() if mechanism == "PLAIN"],
    "SCRAM-SHA-256": [token for mechanism, token, _ in tokens.valid_tokens() if mechanism == "SCRAM-SHA-256"],
    "OAUTHBEARER": [token for mechanism, token, _ in tokens.valid_tokens() if mechanism == "OAUTHBEARER"],
}
for of, dubious in tokens.dubious_tokens():
    CORPUS[of].append(dubious)
LONG = {
    "PLAIN": [b"\0" * 16_384, b"a" * 16_384, b"\0" + b"a" * 8_000 + b"\0" + b"p" * 8_000],
    "SCRAM-SHA-256": [
        b"n,,n=" + b"=2C" * 5_000 + b",r=x",
        b"n,,n=a,r=x" + b",k=v" * 4_000,
        b"n," + b"a=" * 8_000,
        b"n,,n=" + b"a" * 16_000,
    ],
    "OAUTHBEARER": [
        b"n,,\x01" + b"a=b\x01" * 4_000 + b"\x01",
        b"n,,\x01" + b"auth=x\x01" * 2_000 + b"\x01",
        tokens.bearer("a" * 16_000),
        tokens.bearer(tokens.jwt('{"a":' * 2_000)),
        tokens.bearer(tokens.jwt('{"sub":"' + "\\u0061" * 1_500 + '"}')),
        tokens.bearer(tokens.jwt("[" * 12_000)),
        tokens.bearer(tokens.jwt('{"a":' + "9" * 11_000 + "}")),
    ],
}


@pytest.mark.parametrize("mechanism", CORPUS)
def test_any_tokens_are_only_watched(mechanism: str) -> None:
    """An observer raises nothing on changed, truncated or random tokens, and its memory is proportional to their size."""

    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
    @given(seed=st.integers(0, 2**32), noise=st.none() | st.binary(max_size=300), answer=st.binary(max_size=40))
    def check(seed: int, noise: bytes | None, answer: bytes) -> None:
        dice = random.Random(seed)
        token = tokens.mutated(dice.choice(CORPUS[mechanism]), dice) if noise is None else noise
        observer_of(mechanism).sent(token)  # run once before the measurement
        tracemalloc.start()
        try:
            observer = observer_of(mechanism)
            observer.sent(token)
            progress = observer.answered(answer)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= 16 * 1024 + 50 * len(token)
        if observer.name is not None and progress is Progress.SUCCEEDED:
            assert answer == b""

    check()


@pytest.mark.parametrize(("mechanism", "token"), [(mechanism, token) for mechanism, found in LONG.items() for token in found])
def test_long_tokens_cost_little(mechanism: str, token: bytes) -> None:
    """An observer uses at most 50 ms of its thread's CPU time on any token of 16 KiB."""
    started = time.thread_time()
    observer_of(mechanism).sent(token)
    assert time.thread_time() - started < 0.05
