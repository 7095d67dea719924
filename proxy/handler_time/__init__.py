"""What a broker's threads worked for a request, estimated from when it left and when its answer came. Pure: times are arguments."""

from proxy.handler_time.broker import BrokerHandlerTime, HandlerTimes
from proxy.handler_time.connection import ConnectionHandlerTime
from proxy.handler_time.work import VERSIONS_BEFORE_LOGIN, Work, work_of

__all__ = ["VERSIONS_BEFORE_LOGIN", "BrokerHandlerTime", "ConnectionHandlerTime", "HandlerTimes", "Work", "work_of"]
