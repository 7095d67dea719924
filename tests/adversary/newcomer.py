"""A client that keeps to its quota and connects from another address while the greedy client runs."""

from protocol.api_keys import ApiKey
from tests.adversary import frames
from tests.adversary.greedy_client import ClientEnd
from tests.adversary.memory_tcp import Address, KernelLoop

ADDRESS = ("198.51.100.7", 1_024)
CLIENT_ID = "newcomer"
RECORD_BYTES = 100
REQUESTS = 2


async def newcomers_wait_ms(loop: KernelLoop, proxy: Address) -> float:
    """Connect, send two small Produce requests, and close; return how long the answers took, at most the patience."""
    end = ClientEnd(loop.kernel.connect(ADDRESS, proxy), lambda _client_id, _size: None)
    began_ms = loop.now_ms
    for _ in range(REQUESTS):
        end.send(end.request(ApiKey.PRODUCE, CLIENT_ID, frames.produce(RECORD_BYTES, 7, 1, CLIENT_ID)))
        await end.until_answered(loop)
    waited_ms = loop.now_ms - began_ms
    end.close(resets=False)
    return float(waited_ms)
