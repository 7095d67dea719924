"""Causes of quota bypasses that were fixed; each is reintroduced by a small change of the code, and a search has to find every one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

from protocol.api_keys import ApiKey
from proxy.enforcement import quota_scope
from proxy.enforcement.groups.departed_throttles import HoldsThrottles
from proxy.net.connection import Connection
from proxy.session import request_context
from proxy.session.buffers import BufferAccount
from proxy.session.request_context import LOGIN, RequestContext
from proxy.session.requests import classifier as request_classifier
from proxy.session.requests.request_side import RequestSide
from proxy.session.requests.throttle_checks import ThrottleChecks
from proxy.session.requests.whole import whole_requests
from proxy.session.responses import answer_bytes, response_side
from proxy.session.responses.request_time_verdicts import RequestTimeVerdicts
from proxy.session.responses.unanswered import UnansweredRequests
from proxy.session.session import Session
from proxy.session.throttle.fetch_admission import FetchAdmission
from proxy.session.throttle.throttle_state import ThrottleState
from quota.maker import Maker
from quota.manager import QuotaGroups


class Mutant(NamedTuple):
    """One cause of a bypass.

    Attributes:
        goal: the resource that a client gets more of.
        says: a description of the fault.
        put_back: a context manager that reintroduces the cause.
    """

    goal: str
    says: str
    put_back: Callable[[], AbstractContextManager[object]]


def _instead(*changes: tuple[Any, str, Any]) -> Callable[[], AbstractContextManager[object]]:
    """Return a context manager that replaces attributes of classes or modules."""

    @contextmanager
    def put_back() -> Iterator[None]:
        with ExitStack() as stack:
            for where, name, value in changes:
                stack.enter_context(mock.patch.object(where, name, value))
            yield

    return put_back


def _nothing(*_arguments: object, **_named: object) -> None:
    pass


def _always(*_arguments: object, **_named: object) -> bool:
    return True


def _never(*_arguments: object, **_named: object) -> bool:
    return False


# --- a client that disconnects

_depart = Connection._depart


def _forgiven(self: Connection, now: int) -> None:
    """The rest of the throttle is dropped, and complete frames are forwarded whatever they cost."""
    self.session.requests.ungated = True
    self.session.throttle.cancel()
    _depart(self, now)


_pass_fetches = RequestSide._pass_fetches


def _freed(self: RequestSide, head: Any, data: Any, at: int, most: int, *times: int) -> Any:
    """No fetch of a client that has closed its side is recorded."""
    if self.ungated:
        self._fetch_admission.forwarded(None)
        return data, self._pass_run(head, data, at, 1, *times)
    return _pass_fetches(self, head, data, at, most, *times)


_FORGIVEN: Final = (Connection, "_depart", _forgiven)

# --- the time of requests

_wait_max_ms = RequestTimeVerdicts.wait_max_ms
_is_free = RequestTimeVerdicts.is_free
_joined: Final = "JoinGroup was among the requests of these heads"


def _silenced_for_no_time(self: RequestTimeVerdicts, head: RequestContext) -> int:
    """A session timeout of 0 makes the longest wait of the connection 0 ms, which counts as within quota."""
    met = self._classifier
    if head.key == ApiKey.JOIN_GROUP:
        met.client_ids = (*met.client_ids, _joined)
    return 0 if _joined in met.client_ids else _wait_max_ms(self, head)


def _free_of_charge(self: RequestTimeVerdicts, head: RequestContext, data: bytes, at: int, frame_bytes: int) -> bool:
    """The time of SASL messages counts for no client, also where the broker refuses them."""
    return head.kind == LOGIN or _is_free(self, head, data, at, frame_bytes)


# --- what the proxy keeps in memory


def _in_full(name: str) -> str:
    """A name is kept whole, however long it is."""
    return name


# --- what other clients get


def _one_for_all(_self: Any, sharing: Maker, _place: Maker) -> bool:
    """A client without room for a group of its own shares one with every other client."""
    return not any(sharing)


MUTANTS: Final[dict[str, Mutant]] = {
    "half-close-frees-fetches": Mutant(
        "fetch",
        "a half-close ends the admission of fetches and drops the throttle",
        _instead(_FORGIVEN, (RequestSide, "_pass_fetches", _freed)),
    ),
    "half-close-forgives": Mutant("produce", "a half-close drops the throttle, and all sent requests are forwarded", _instead(_FORGIVEN)),
    "throttle-ends-with-connection": Mutant(
        "produce", "a verdict ends with its connection", _instead((HoldsThrottles, "leave_throttle", _nothing))
    ),
    "closed-unrecorded": Mutant(
        "produce",
        "requests whose answers are not read are not recorded",
        _instead((UnansweredRequests, "record", _nothing), (UnansweredRequests, "scan", _nothing)),
    ),
    "throttle-not-inherited": Mutant("produce", "new connections inherit no throttle", _instead((ThrottleChecks, "inherits", _never))),
    "time-ends-with-connection": Mutant(
        "request", "a verdict on request time ends with its connection", _instead((HoldsThrottles, "leave_throttle", _nothing))
    ),
    "session-timeout-zero": Mutant(
        "request",
        "a JoinGroup with a session timeout of 0 ends the waits of its connection",
        _instead((RequestTimeVerdicts, "wait_max_ms", _silenced_for_no_time)),
    ),
    "refused-logins-free": Mutant(
        "request", "the time of refused handshakes is not recorded", _instead((RequestTimeVerdicts, "is_free", _free_of_charge))
    ),
    "fetches-guessed-small": Mutant(
        "fetch", "the size of all pipelined fetches is estimated by the last answer", _instead((FetchAdmission, "may_follow", _always))
    ),
    "throttled-all-go-on": Mutant(
        "produce",
        "a throttle does not limit the requests in flight",
        _instead((ThrottleState, "in_flight_max", lambda *_: 64)),
    ),
    "nothing-reserved": Mutant("memory", "bytes that sessions keep are not in the buffer budget", _instead((Session, "reserve", _always))),
    "no-eviction": Mutant("memory", "at the memory limit no connection is closed", _instead((BufferAccount, "_evict", lambda *_: False))),
    "walked-at-once": Mutant(
        "items", "a request of any length is read to its end in one call", _instead((whole_requests, "AT_ONCE_BYTES", 1 << 40))
    ),
    "answers-walked-at-once": Mutant(
        "items",
        "an answer of any length is read to its end in one call",
        _instead((response_side, "AT_ONCE_BYTES", 1 << 40), (answer_bytes, "AT_ONCE_BYTES", 1 << 40)),
    ),
    "one-overflow-for-all": Mutant(
        "newcomer",
        "one client can fill the table of groups, and all new clients share one",
        _instead((QuotaGroups, "_has_share_left", _always), (QuotaGroups, "_may_overflow", _one_for_all)),
    ),
    "names-in-full": Mutant(
        "memory",
        "tables keep names of any length",
        _instead(
            (quota_scope, "kept_name", _in_full),
            (request_classifier, "kept_name", _in_full),
            (request_context, "PREFIX_BYTES_MAX", 1 << 20),
        ),
    ),
}
