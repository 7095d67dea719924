"""The usage table is bounded although clients choose the ids in it."""

from proxy.telemetry.client_usage import UsageTable


def test_one_maker_fills_no_more_than_half_of_the_table() -> None:
    """Beyond half of the table an address with many entries is counted in the entry for others, and a newcomer is not."""
    usages = UsageTable(usages_max=20, usages_per_maker_max=3)
    flood = [usages.get("ANONYMOUS", f"x{number}", "192.0.2.1") for number in range(30)]
    assert [usage is usages.other for usage in flood] == [False] * 10 + [True] * 20
    assert usages.get("ANONYMOUS", "x1", "192.0.2.1") is flood[1]
    for number in range(5):
        usage = usages.get("ANONYMOUS", f"y{number}", "192.0.2.2")
        assert (usage is usages.other) is (number >= 3)
    assert [usages.get("alice", f"z{number}") is usages.other for number in range(4)] == [False, False, False, True]
    assert len(usages) == 16


def test_a_full_table_is_full_for_all_threads() -> None:
    """A full table adds no entry, and the entries in it stay."""
    usages = UsageTable(usages_max=2)
    known = [usages.get("alice", "a"), usages.get("bob", "b")]
    assert usages.get("carol", "c") is usages.other
    assert [usages.get("alice", "a", "elsewhere"), usages.get("bob", "b")] == known
