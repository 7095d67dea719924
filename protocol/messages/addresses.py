"""Replace broker addresses in responses: skim and splice, driven by the layouts of `apis.json`."""

from collections.abc import Callable
from typing import NamedTuple

from protocol.api_keys import ApiVersion

Resolve = Callable[[int, str, int], tuple[str, int] | None]
"""(node id, host, port) of an entry to the host and port that clients may see, or None: not ours to say, leave it."""


class Spliced(NamedTuple):
    """A response after splicing.

    Attributes:
        frame: the same object that was given when nothing changed.
        node_ids: ids met, in wire order, -1 ("no node") included.
        unmapped: those of them that `resolve` answered None to, so they stand there unchanged.
        controllers: DescribeCluster about an endpoint type other than brokers: nothing was touched, nobody was asked.
    """

    frame: bytes
    node_ids: tuple[int, ...]
    unmapped: tuple[int, ...]
    controllers: bool


def splice(api: ApiVersion, frame: bytes, resolve: Resolve) -> bytes:
    """Return the whole response `frame`, length included, with its addresses replaced. See `splice_report`."""
    return splice_report(api, frame, resolve).frame


def splice_report(api: ApiVersion, frame: bytes, resolve: Resolve) -> Spliced:
    """Replace host and port of every entry that `resolve` answers, and put lengths and sizes right.

    Raises:
        BadResponseError: the frame does not read as its API and version say.
    """
    raise NotImplementedError
