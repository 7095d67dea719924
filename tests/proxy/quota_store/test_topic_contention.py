"""Writers of one topic that fence each other: each of them gets its turn."""

import random

import pytest

from proxy.quota_store.store import StoreUnavailable
from proxy.quota_store.topic.contention import LIMIT_S, Contention

CHANGES = 15


class Writer:
    """A writer on virtual time: each try begins at once by fencing all others, and commits after `try_s`."""

    def __init__(self, generator: random.Random, try_s: float) -> None:
        self.generator = generator
        self.try_s = try_s
        self.changes = 0
        self.tries = 0
        self.fenced = False
        self.contention = Contention("topic:quotas", 0.0, generator)
        self.due_s = 0.0
        self.committing = False

    def step(self, now_s: float) -> None:
        """Begin a try, or end one."""
        if not self.committing:
            self.tries += 1
            self.fenced = False
            self.contention.begin(now_s)
            self.committing, self.due_s = True, now_s + self.try_s
            return
        self.committing = False
        if self.fenced:
            self.due_s = now_s + self.contention.lost(now_s)
            return
        self.changes += 1
        self.due_s = now_s
        self.contention = Contention("topic:quotas", now_s, self.generator)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("count", "try_s"), [(2, 0.01), (2, 0.1), (2, 0.7), (5, 0.01), (5, 0.1)])
def test_writers_that_fence_each_other_all_commit_their_changes(seed: int, count: int, try_s: float) -> None:
    """Two and five writers with equally long tries commit all their changes, with some tries for each, in the time that a change has."""
    generator = random.Random(seed)
    writers = [Writer(generator, try_s) for _ in range(count)]
    while waiting := [writer for writer in writers if writer.changes < CHANGES]:
        writer = min(waiting, key=lambda one: one.due_s)
        begins = not writer.committing
        writer.step(writer.due_s)
        for other in writers:
            if begins and other is not writer:
                other.fenced = True
    assert sum(writer.tries for writer in writers) < 8 * count * CHANGES


def test_a_change_that_gets_no_turn_is_refused_after_the_time_limit() -> None:
    """A writer that is fenced each time refuses its change after 25 s, before the admin client gives up, and says that nothing changed."""
    contention = Contention("topic:quotas", 100.0, random.Random(1))
    now_s = 100.0
    while now_s < 100.0 + LIMIT_S:
        contention.begin(now_s)
        now_s += 0.5
        if now_s < 100.0 + LIMIT_S:
            now_s += contention.lost(now_s)
            assert now_s <= 100.0 + LIMIT_S
    with pytest.raises(StoreUnavailable, match=r"topic:quotas: .* for 25 s .* try again, nothing was changed") as refused:
        contention.lost(now_s)
    assert refused.value.is_certain
