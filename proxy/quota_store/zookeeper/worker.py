"""The thread that reads, follows and changes ZooKeeper's nodes. No other thread waits for ZooKeeper.

Its input is a queue of jobs: a new connection (everything is read again, since watches were lost), a watch that fired, a requested change.
kazoo's threads only add jobs.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from proxy.quota_store.remote import Answered, Judge, StoreState, Worker
from proxy.quota_store.store import Origin, StoreUnavailable
from proxy.quota_store.zookeeper.client import Conflict, Denied, ZookeeperClient, ZookeeperUnavailable
from proxy.quota_store.zookeeper.znode_codec import CONFIG, SWITCHES
from proxy.quota_store.zookeeper.znode_operations import Step, steps_of
from proxy.quota_store.zookeeper.znode_reader import ZnodeReader, with_users
from proxy.quota_store.zookeeper.znode_tree import ZnodeTree

POLL_INTERVAL_S: Final = 5.0
"""Maximum interval between reads of changes, with or without a watch."""
RETRY_S: Final = 0.5
WHOLE_MS: Final = 15 * 60 * 1_000
"""Maximum interval between reads of all nodes, since a node may change without a notification."""
STEPS_AT_ONCE: Final = 200
BYTES_AT_ONCE: Final = 512 * 1024
"""Maximum size of the data in one transaction; ZooKeeper's limit is 1 MiB."""
TRIES: Final = 60
"""Maximum number of attempts of a change after conflicts with other writers."""


class ZookeeperWorker:
    """A thread with its client and the known nodes. A thread that hangs is abandoned, and a new worker replaces it.

    Args:
        make_client: creates a client from a function to call when the connection is made or lost.
        place: name of the store in messages.
        on_state: called with the state after each job, on the thread.
        good: nodes of the previous worker, with their last valid values; None: there was no worker.
        now_ms: monotonic clock.
        creates: whether to create missing parent nodes of Kafka's quotas.
    """

    def __init__(
        self,
        make_client: Callable[[Callable[[bool], None]], ZookeeperClient],
        place: str,
        on_state: Callable[[Worker, StoreState], None],
        good: ZnodeTree | None,
        now_ms: Callable[[], int],
        *,
        creates: bool = False,
    ) -> None:
        self.tree = ZnodeTree(good)
        self.progress_ms = now_ms()
        self._place = place
        self._on_state = on_state
        self._now_ms = now_ms
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._client = make_client(self._connection_changed)
        self._reader = ZnodeReader(self._client, self.tree, self._watched, creates=creates)
        self._content = self.tree.content()
        self._connected = False
        self._whole = False
        self._all_read_ms = now_ms()
        self._poll_queued = threading.Event()  # set: the queue already has a look
        self._kept_back = False  # whether the result of the last look was not reported
        self._thread = threading.Thread(target=self._run, name="sluice-zookeeper", daemon=True)

    def start(self) -> None:
        """Start the thread, which connects."""
        self._thread.start()

    def stop(self) -> None:
        """Request the end of the thread after the current job, without waiting."""
        self._jobs.put(None)
        self._client.close()

    def poll(self, done: Callable[[], None]) -> None:
        """Read all nodes again, if connected; `done` is called on the thread."""

        def job() -> None:
            if self._connected:
                self._guarded(self._read_all)
            else:
                self._suspended()
            done()

        self._jobs.put(job)

    def alter(self, decide: Judge, answered: Answered) -> None:
        """Make the changes of `decide`; `answered` is called on the thread."""
        self._jobs.put(lambda: self._alter(decide, answered))

    # --- on kazoo's threads: these only add jobs

    def _connection_changed(self, connected: bool) -> None:
        self._connected = connected
        self._jobs.put(self._resync if connected else self._suspended)

    def _watched(self, _: Any) -> None:
        if not self._poll_queued.is_set():
            self._poll_queued.set()
            self._jobs.put(self._read_notifications)

    # --- on the worker's thread

    def _run(self) -> None:
        self._client.start()
        while True:
            try:
                job = self._jobs.get(timeout=POLL_INTERVAL_S if self._whole else RETRY_S)
            except queue.Empty:
                job = self._read_notifications if self._whole else self._resync
            if job is None:
                return
            try:
                job()
            except Exception as error:  # noqa: BLE001 - a bug must not end the thread, and the quotas stay in force
                self._whole = False
                self._report("outside", f"{self._place}: {type(error).__name__}: {error}; the last quotas that were read apply")

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
            return f"{self._place}: {problem}; the last quotas that were read apply until then"
        return f"{self._place}: is not connected; the last quotas that were read apply until it responds"

    def _read_notifications(self) -> None:
        self._poll_queued.clear()
        if not self._whole:
            self._resync()
        elif self._connected:
            is_time = self._now_ms() - self._all_read_ms > WHOLE_MS
            self._guarded(self._read_all if is_time else self._read_changes, may_wait=True)

    def _read_all(self) -> None:
        self._reader.read_all()
        self._all_read_ms = self._now_ms()

    def _read_changes(self) -> None:
        if self._reader.read_changes():
            self._all_read_ms = self._now_ms()

    def _guarded(self, read: Callable[[], None], *, may_wait: bool = False) -> None:
        """Call `read`, and report the result.

        Args:
            may_wait: whether the report may wait for the next look. A change during the read may be read in part; then the next look, or at
                the latest the one after it, reports.
        """
        problem: str | None = None
        is_partial = False
        try:
            read()
            is_partial = may_wait and not self._kept_back and self._may_be_partial()
            self._whole = True
            self.progress_ms = self._now_ms()
        except ZookeeperUnavailable as lost:
            self._whole = False
            line = f"{self._place}: {lost}; the last quotas that were read apply until it responds"
            problem = line if self._client.problem is None else self._silent()
        except Denied as denied:
            self._whole, problem = (
                False,
                f"{self._place}: denies Sluice permission to read the quotas ({denied}); check the ACLs of {CONFIG}",
            )
        self._kept_back = is_partial and problem is None
        if not self._kept_back:
            self._report("outside", problem)

    def _may_be_partial(self) -> bool:
        """Whether a change came during the read. kazoo may call the watch of that change after it has returned the new data."""
        return self._poll_queued.is_set() or (self.tree.content() != self._content and self._reader.has_newer_changes())

    def _report(self, origin: Origin, error: str | None = None) -> None:
        content = self.tree.content()
        if content != self._content:
            self._content = content
        self._on_state(self, StoreState(self._content, origin, error, self.tree.rejected, self.tree.problems))

    # --- changes

    def _alter(self, decide: Judge, answered: Answered) -> None:
        answer: Any = None
        problem: Exception | None = None
        try:
            answer = self._altered(decide)
        except StoreUnavailable as error:
            problem = error
        except Exception as error:  # noqa: BLE001 - an error of `decide`: the caller gets it, and this thread continues
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
        raise StoreUnavailable(f"{self._place}: other processes keep changing the same quotas; try again", is_certain=done == 0)

    def _commit(self, steps: Sequence[Step]) -> None:
        """Make the changes of `steps`, all or none, and read the nodes back.

        Raises:
            Conflict: another writer changed a node first.
            StoreUnavailable: the changes are not made, or their outcome is unknown.
        """
        try:
            if any(step.path == SWITCHES for step in steps) and self.tree.switches_node is None:
                self._client.make(SWITCHES.rpartition("/")[0])
            self._client.commit([operation for step in steps for operation in step.operations])
            self._read_back(steps)
        except Denied as denied:
            raise StoreUnavailable(f"{self._place}: denies Sluice permission to change quotas ({denied}); nothing was changed") from None
        except ZookeeperUnavailable as lost:
            self._whole = False
            raise StoreUnavailable(
                f"{self._place}: {lost}; whether the change was made is known when it responds again", is_certain=False
            ) from None
        self.progress_ms = self._now_ms()

    def _read_back(self, steps: Iterable[Step]) -> None:
        self._reader.read(with_users(step.path for step in steps if step.path != SWITCHES))
        self._reader.read_switches()

    def _read_again(self, steps: Iterable[Step], done: int) -> None:
        """Read the nodes after a conflict, and report the other program's change before this one's."""
        try:
            self._read_back(steps)
        except (Denied, ZookeeperUnavailable) as problem:
            line = f"{self._place}: {problem}; {'nothing was changed' if not done else 'a part of it was made'}"
            raise StoreUnavailable(line, is_certain=not done) from None
        self._report("outside")


def _portions(steps: Sequence[Step]) -> Iterable[list[Step]]:
    """Yield steps in portions that fit one transaction."""
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
