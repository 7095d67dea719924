"""Estimates the time that a broker's request handlers spend on a request, from the times of request and response. Does no I/O."""

from proxy.handler_time.broker import BrokerHandlerTime, HandlerTimes, MakeBrokerHandlerTime, alone
from proxy.handler_time.connection import ConnectionHandlerTime
from proxy.handler_time.shared import shared_by
from proxy.handler_time.work import VERSIONS_BEFORE_LOGIN, Work, work_of

__all__ = [
    "VERSIONS_BEFORE_LOGIN",
    "BrokerHandlerTime",
    "ConnectionHandlerTime",
    "HandlerTimes",
    "MakeBrokerHandlerTime",
    "Work",
    "alone",
    "shared_by",
    "work_of",
]
