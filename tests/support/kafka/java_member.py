"""A Java member of a consumer group (see Member.java), and the events it reports."""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tests.support.kafka.java_tools import JavaTools


class JavaMember:
    """A consumer in the JVM of `tools`. A context manager: the consumer closes at its end, while its JVM still runs.

    Args:
        bootstrap: address that it connects to.
        topic: the topic that it reads.
        settings: consumer settings, including group.id.
    """

    def __init__(self, tools: JavaTools, bootstrap: str, topic: str, settings: Mapping[str, str | int]) -> None:
        self._tools = tools
        self._command = tools.start("Member", bootstrap, topic, *(f"{key}={value}" for key, value in settings.items()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._command.is_running():
            self._tools.interrupt(self._command)

    @property
    def assignments(self) -> int:
        """How often partitions were assigned to it."""
        return len(self._said("assigned"))

    def owned(self) -> list[int]:
        """The partitions that it owns now."""
        return [int(number) for number in (self._said("assigned", "left") or [""])[-1].split(",") if number]

    @property
    def records_read(self) -> int:
        """How many records it has read."""
        return int((self._said("read") or ["0"])[-1])

    @property
    def slowest_heartbeat_ms(self) -> int:
        """The longest time of a heartbeat."""
        return max(map(int, self._said("heartbeat")), default=0)

    @property
    def problem(self) -> str:
        """The error that ended it; empty while it runs."""
        return "" if self._command.is_running() else self._command.err

    def _said(self, *words: str) -> list[str]:
        lines = (line.partition(" ") for line in self._command.out.splitlines())
        return [rest for head, _, rest in lines if head in words]
