"""The thread that speaks with ZooKeeper: it knows the nodes, follows them, and changes them. Nobody else waits for ZooKeeper.

Everything comes to it as a job: a connection that came (then everything is read again, since watches of before are lost), a watch that
fired, a change that somebody asks for. kazoo's threads only put jobs in.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from heapq import nsmallest
from typing import Any, Final

from proxy.quota_store.remote import Answered, Judge, Told, Worker
from proxy.quota_store.store import Origin, StoreUnavailable
from proxy.quota_store.znode_codec import CHANGES, CONFIG, FOLDERS, SWITCHES, is_change, read_change
from proxy.quota_store.znode_operations import Step, steps_of
from proxy.quota_store.znode_tree import ZnodeTree
from proxy.quota_store.zookeeper_client import Conflict, Denied, Lost, ZookeeperClient
from proxy.quota_store.zookeeper_reads import Node

BEAT_S: Final = 5.0
"""At least so often ZooKeeper is asked for what changed, watch or no watch."""
RETRY_S: Final = 0.5
WHOLE_MS: Final = 15 * 60 * 1_000
"""At least so often everything is read: somebody may have changed a node and told nobody."""
NOTIFICATIONS_MAX: Final = 1_000
"""More at once, and everything is read again instead."""
KEPT_MS: Final = 15 * 60 * 1_000
"""Notifications older than the newest by so much are removed by whoever reads them, as brokers do."""
PURGED_AT_ONCE: Final = 200
STEPS_AT_ONCE: Final = 200
BYTES_AT_ONCE: Final = 512 * 1024
"""ZooKeeper takes 1 MiB."""
TRIES: Final = 60
"""How often somebody else may be faster."""


class ZookeeperWorker:
    """A thread, its client and what it knows. One that hangs is left behind, and another begins.

    Args:
        make_client: given a function to call when the connection came or went.
        place: how messages call ZooKeeper.
        tell: told after each job, on the thread.
        good: what was known before, last good values above all.
        now_ms: the monotonic clock.
        creates: where there are no quotas of Kafka's, room for them is made.
    """

    def __init__(
        self,
        make_client: Callable[[Callable[[bool], None]], ZookeeperClient],
        place: str,
        tell: Callable[[Worker, Told], None],
        good: ZnodeTree | None,
        now_ms: Callable[[], int],
        *,
        creates: bool = False,
    ) -> None:
        self.tree = ZnodeTree(good)
        self.progress_ms = now_ms()
        self._place = place
        self._tell = tell
        self._now_ms = now_ms
        self._creates = creates
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._client = make_client(self._connection_changed)
        self._content = self.tree.content()
        self._last_told = ""  # the newest notification that was seen; their names are of one length
        self._connected = False
        self._whole = False
        self._all_read_ms = now_ms()
        self._looking = threading.Event()  # set: a look is already to come
        self._thread = threading.Thread(target=self._run, name="sluice-zookeeper", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def stop(self) -> None:
        """End after the job that is under way; waits for nothing."""
        self._jobs.put(None)
        self._client.close()

    def look(self, done: Callable[[], None]) -> None:
        """Read everything again, where that is possible."""

        def job() -> None:
            if self._connected:
                self._guarded(self._read_all)
            else:
                self._suspended()
            done()

        self._jobs.put(job)

    def alter(self, decide: Judge, answered: Answered) -> None:
        """Make a change; `answered` is called on the thread."""
        self._jobs.put(lambda: self._alter(decide, answered))

    # --- on kazoo's threads: only notes

    def _connection_changed(self, connected: bool) -> None:
        self._connected = connected
        self._jobs.put(self._resync if connected else self._suspended)

    def _watched(self, _: Any) -> None:
        if not self._looking.is_set():
            self._looking.set()
            self._jobs.put(self._look_at_changes)

    # --- on the worker's thread

    def _run(self) -> None:
        self._client.start()
        while True:
            try:
                job = self._jobs.get(timeout=BEAT_S if self._whole else RETRY_S)
            except queue.Empty:
                job = self._look_at_changes if self._whole else self._resync
            if job is None:
                return
            try:
                job()
            except Exception as error:  # noqa: BLE001 - a bug of ours or kazoo's ends neither the thread nor the quotas
                self._whole = False
                self._report("outside", f"{self._place}: {type(error).__name__}: {error}; the quotas that were read last hold")

    def _resync(self) -> None:
        if self._connected:
            self._guarded(self._read_all)
        elif self._client.problem is not None:
            self._suspended()

    def _suspended(self) -> None:
        self._whole = False
        self._report("outside", self._silent())

    def _silent(self) -> str:
        problem = self._client.problem
        if problem is not None:
            return f"{self._place}: {problem}; the quotas that were read last hold until then"
        return f"{self._place}: is not connected; the quotas that were read last hold until it answers"

    def _look_at_changes(self) -> None:
        self._looking.clear()
        if not self._whole:
            self._resync()
        elif self._connected:
            is_time = self._now_ms() - self._all_read_ms > WHOLE_MS
            self._guarded(self._read_all if is_time else self._read_changes)

    def _guarded(self, read: Callable[[], None]) -> None:
        """Read, and report what came of it."""
        problem: str | None = None
        try:
            read()
            self._whole = True
            self.progress_ms = self._now_ms()
        except Lost as lost:
            self._whole = False
            line = f"{self._place}: {lost}; the quotas that were read last hold until it answers"
            problem = line if self._client.problem is None else self._silent()
        except Denied as denied:
            self._whole, problem = False, f"{self._place}: does not let Sluice read the quotas ({denied}); check the ACLs of {CONFIG}"
        self._report("outside", problem)

    def _report(self, origin: Origin, error: str | None = None) -> None:
        content = self.tree.content()
        if content != self._content:
            self._content = content
        self._tell(self, Told(self._content, origin, error, self.tree.rejected, self.tree.problems))

    def _read_all(self) -> None:
        """Read every node, with watches set before: what changes meanwhile is looked at afterwards."""
        client = self._client
        self._watch_changes()
        self._read_switches()
        paths: list[str] = []
        for folder in FOLDERS:
            names = [f"{folder}/{name}" for name in client.children(f"{CONFIG}/{folder}")]
            paths += names
            self._read(names)
        users = [path for path in paths if path.startswith("users/") and (node := self.tree.node(path)) is not None and node.children]
        below = [
            f"{parent.removeprefix(f'{CONFIG}/')}/{name}"
            for parent, names in client.children_of_many(f"{CONFIG}/{user}/clients" for user in users)
            for name in names
        ]
        self._read(below)
        self.tree.keep_only([*paths, *below])
        self._all_read_ms = self._now_ms()

    def _watch_changes(self) -> list[str]:
        """Return the names of all notifications, and be told of the next."""
        names = self._client.children(CHANGES, self._watched)
        if not names and not self._client.exists(CHANGES):
            if not self._creates:
                raise Lost(f"has no {CHANGES}, so this is no Kafka's tree; write another connect, or create = true")
            for one in (CHANGES, *(f"{CONFIG}/{folder}" for folder in FOLDERS)):
                self._client.make(one)
            names = self._client.children(CHANGES, self._watched)
        names = [name for name in names if is_change(name)]
        self._last_told = max(names, default="")
        return names

    def _read_switches(self) -> None:
        if self._client.exists(SWITCHES, self._watched):
            self.tree.put_switches(self._client.get(SWITCHES, self._watched))
        else:
            self.tree.put_switches(None)

    def _read(self, paths: Iterable[str]) -> None:
        for path, node in self._client.get_many(f"{CONFIG}/{path}" for path in paths):
            here = path.removeprefix(f"{CONFIG}/")
            self.tree.put(here, "may not be read" if isinstance(node, Denied) else node)

    def _read_changes(self) -> None:
        """Read what notifications name. They say that something changed, not what: the nodes are the truth."""
        before = self._last_told
        names = self._watch_changes()
        new = sorted(name for name in names if name > before)
        if self._last_told < before or len(new) > NOTIFICATIONS_MAX:
            self._read_all()
            return
        self._read_switches()
        told = [node for _, node in self._client.get_many(f"{CHANGES}/{name}" for name in new)]
        paths = dict.fromkeys(path for node in told if isinstance(node, Node) if (path := read_change(node.data)) is not None)
        self._read(_with_users(paths))
        if new:
            self._purge(names)

    def _purge(self, names: list[str]) -> None:
        newest = self._client.created_ms(f"{CHANGES}/{self._last_told}")
        for name in nsmallest(PURGED_AT_ONCE, names) if len(names) > 1 else ():
            created = self._client.created_ms(f"{CHANGES}/{name}")
            if newest is None or created is None or newest - created <= KEPT_MS:
                return
            self._client.delete(f"{CHANGES}/{name}")

    # --- changes

    def _alter(self, decide: Judge, answered: Answered) -> None:
        answer: Any = None
        problem: Exception | None = None
        try:
            answer = self._altered(decide)
        except StoreUnavailable as error:
            problem = error
        except Exception as error:  # noqa: BLE001 - of `decide`: whoever asked has to hear of it, and this thread goes on
            problem = error
        answered(answer, problem)

    def _altered(self, decide: Judge) -> Any:
        if not (self._connected and self._whole):
            raise StoreUnavailable(f"{self._place}: is not connected; try again, nothing was changed")
        done = 0
        for _ in range(TRIES):
            answer, changes = decide(self.tree.content())
            steps = steps_of(changes, self.tree)
            try:
                for some in _portions(steps):
                    self._commit(some)
                    done += len(some)
            except Conflict:
                self._read_again(steps, done)
                continue
            self._report("own")
            return answer
        raise StoreUnavailable(f"{self._place}: others change the same quotas all the time; try again", is_certain=done == 0)

    def _commit(self, steps: Sequence[Step]) -> None:
        """Make some changes, all or none, and read what stands there then.

        Raises:
            Conflict: somebody else was faster.
            StoreUnavailable: they are not made, or nobody knows.
        """
        try:
            if any(step.path == SWITCHES for step in steps) and self.tree.switches_node is None:
                self._client.make(SWITCHES.rpartition("/")[0])
            self._client.commit([operation for step in steps for operation in step.operations])
            self._read_back(steps)
        except Denied as denied:
            raise StoreUnavailable(f"{self._place}: does not let Sluice change quotas ({denied}); nothing was changed") from None
        except Lost as lost:
            self._whole = False
            raise StoreUnavailable(
                f"{self._place}: {lost}; whether the change was made shows when it answers again", is_certain=False
            ) from None
        self.progress_ms = self._now_ms()

    def _read_back(self, steps: Iterable[Step]) -> None:
        self._read(_with_users(step.path for step in steps if step.path != SWITCHES))
        self._read_switches()

    def _read_again(self, steps: Iterable[Step], done: int) -> None:
        """Read what somebody else changed, and tell of it before our own change."""
        try:
            self._read_back(steps)
        except (Denied, Lost) as problem:
            line = f"{self._place}: {problem}; {'nothing was changed' if not done else 'a part of it was made'}"
            raise StoreUnavailable(line, is_certain=not done) from None
        self._report("outside")


def _with_users(paths: Iterable[str]) -> list[str]:
    """Return paths, with that of the user for each of a user's client: it may have come or gone with it."""
    both = (part for path in paths for part in ((path.partition("/clients/")[0], path) if path.startswith("users/") else (path,)))
    return list(dict.fromkeys(both))


def _portions(steps: Sequence[Step]) -> Iterable[list[Step]]:
    """Yield steps in portions that ZooKeeper takes at once."""
    portion: list[Step] = []
    size = 0
    for step in steps:
        bytes_ = sum(len(operation.path) + len(getattr(operation, "data", b"")) + 100 for operation in step.operations)
        if portion and (len(portion) >= STEPS_AT_ONCE or size + bytes_ > BYTES_AT_ONCE):
            yield portion
            portion, size = [], 0
        portion.append(step)
        size += bytes_
    if portion:
        yield portion
