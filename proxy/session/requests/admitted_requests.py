"""Requests that an admission lets pass, one connection's: what their handling needs."""

from __future__ import annotations

from typing import Generic, TypeVar

from proxy.session.in_flight import InFlight
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.requests.pending_requests import PendingRequests
from proxy.session.throttle.throttle_state import ThrottleState

Admission = TypeVar("Admission")


class AdmittedRequests(Generic[Admission]):
    """Those requests of one connection."""

    __slots__ = ("_admission", "_classifier", "_in_flight", "_pending", "_throttle")

    def __init__(
        self,
        in_flight: InFlight,
        throttle: ThrottleState,
        admission: Admission,
        pending: PendingRequests,
        classifier: RequestClassifier,
    ) -> None:
        self._in_flight = in_flight
        self._throttle = throttle
        self._admission = admission
        self._pending = pending
        self._classifier = classifier
