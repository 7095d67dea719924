"""CPU time of the longest call of the event loop for frames with thousands of items: `python -m bench.micro_long_frames [ATTACK]...`.

The attacks of `bench.attacks` run through whole connections in memory, read in pieces of 256 KiB as an event loop does. The bench prints
CPU milliseconds of the longest call and of all calls, and the number of calls. CPU time does not depend on other load; without sockets the
kernel's time is not included.
"""

import gc
import struct
import sys
import time
from collections.abc import Callable

from bench.attacks.frames import ATTACKER, MAKERS, attack
from bench.harness.frames import METADATA, metadata_answer
from proxy.enforcement.mode import Mode
from tests.support.memory.memory_connection import ProxyFixture

HOST, PORT = "127.0.0.1", 19_092
READ_BYTES = 256 * 1024
UNREACHABLE = 1e8
ROUNDS = 3


class Clock:
    """CPU time of calls."""

    def __init__(self) -> None:
        self.calls: list[float] = []

    def timed(self, call: Callable[..., object]) -> Callable[..., object]:
        """Return `call` so that its CPU time is added."""

        def timed(*arguments: object) -> object:
            began = time.thread_time()
            try:
                return call(*arguments)
            finally:
                self.calls.append((time.thread_time() - began) * 1_000)

        return timed


def play(name: str) -> list[float]:
    """Send one request and its answer; return the CPU milliseconds of each call."""
    what, clock = attack(name), Clock()
    with ProxyFixture(mode=Mode.MUTE) as proxy:
        proxy.set_quota(mutation=UNREACHABLE, produce=UNREACHABLE, fetch=UNREACHABLE, client_id=ATTACKER)
        peer = proxy.connect(lambda _node_id, _host, _port: (HOST, PORT))
        arrive, answer = clock.timed(peer.client.arrive), clock.timed(peer.broker.arrive)
        call_later = proxy.loop.call_later
        proxy.loop.call_later = lambda delay_s, callback, *rest: call_later(delay_s, clock.timed(callback), *rest)  # type: ignore[method-assign]
        gc.collect()
        gc.disable()
        for at in range(0, len(what.requests), READ_BYTES):
            arrive(what.requests[at : at + READ_BYTES])
        proxy.wait(0)
        if what.answer is not None:
            whole = what.answer.whole()
            asked = peer.broker.take()
            if asked[4:6] == struct.pack(">h", METADATA):  # the question for topic sizes
                said = metadata_answer(asked[7], HOST, PORT).whole()
                answer(said[:4] + asked[8:12] + said[8:])
                proxy.wait(0)
                asked = peer.broker.take()
            if asked[4:6] != what.requests[4:6]:
                raise RuntimeError(f"{name}: the request did not reach the broker")
            for at in range(0, len(whole), READ_BYTES):
                answer(whole[at : at + READ_BYTES])
                proxy.wait(0)
            if not peer.client.take():
                raise RuntimeError(f"{name}: no answer")
        gc.enable()
    return clock.calls


def main() -> None:
    """Print one line per attack."""
    print(f"{'CPU ms of':<28}{'the longest call':>18}{'all calls':>12}{'calls':>8}")
    for name in sys.argv[1:] or MAKERS:
        best = min((play(name) for _ in range(ROUNDS)), key=max)
        print(f"{name:<28}{max(best):>18.2f}{sum(best):>12.1f}{len(best):>8,}", flush=True)


if __name__ == "__main__":
    main()
