"""Estimates the time of a broker's request handlers for a request, from the times of the request and of its response. Does no I/O."""

from proxy.handler_time.broker import BrokerHandlerTime, HandlerTimes
from proxy.handler_time.connection import ConnectionHandlerTime
from proxy.handler_time.work import VERSIONS_BEFORE_LOGIN, Work, work_of

__all__ = ["VERSIONS_BEFORE_LOGIN", "BrokerHandlerTime", "ConnectionHandlerTime", "HandlerTimes", "Work", "work_of"]
