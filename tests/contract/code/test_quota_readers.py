"""The proxy and the pipeline each have a reader of quota files, and both read the same bounds from every file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.quotas.file import quota_file_of
from proxy.quota_store.file.quota_file import read_quota_text
from proxy.quota_store.in_force import in_force
from quota.entity import UNLIMITED

ROOT = Path(__file__).parents[3]
RATES = st.sampled_from(["1", "1048576", '"1MiB"', '"2.5 MB"', '"10kB"', "7.0", "9223372036854775807", "1235.0000001"])
NUMBERS = st.sampled_from(["12.5", "1", "inf"])
NAMES = st.sampled_from(["<default>", "alice", "etl", "a b"])


@st.composite
def files(draw: st.DrawFn) -> str:
    lines, seen = [], set()
    for _ in range(draw(st.integers(0, 5))):
        user, client_id = draw(st.one_of(st.none(), NAMES)), draw(st.one_of(st.none(), NAMES))
        if (user, client_id) in seen or user is client_id is None:
            continue
        seen.add((user, client_id))
        lines.append("[[quota]]")
        lines += [f'user = "{user}"'] if user else []
        lines += [f'client-id = "{client_id}"'] if client_id else []
        lines += [f"producer_byte_rate = {draw(RATES)}", f"request_percentage = {draw(NUMBERS)}"]
    lines += ["[[switch]]", 'target = "all"', 'mode = "off"'] if draw(st.booleans()) else []
    return "\n".join(lines) + "\n"


def both_agree(text: str) -> None:
    ours, theirs = quota_file_of(text, "quotas.toml"), in_force(read_quota_text(text.encode(), "quotas.toml"))
    for quota_type, table in theirs.table.items():
        callback = ours.callbacks[quota_type.value]
        for entity, bound in table.items():
            if not entity.user_is_default and not entity.client_id_is_default:
                tags = {"user": (entity.user or "").replace(" ", "%20"), "client-id": entity.client_id or ""}
                assert callback.quota_limit(quota_type, tags) == bound
    assert {name: float(rate) for name, rate in theirs.connection_rates.items()} == dict(ours.connection_rates)


@given(files())
def test_generated_files_give_the_same_bounds(text: str) -> None:
    """Both readers return the same bounds for any mixture of entities, sizes and numbers."""
    both_agree(text)


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/**/quotas*.toml")), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_give_the_same_bounds(path: Path) -> None:
    """Both readers return the same bounds for every quota file in examples/."""
    both_agree(path.read_text())


def test_an_address_has_its_rate_or_the_default() -> None:
    """The connection rate of an address is its own, otherwise that of the default address, otherwise unlimited."""
    text = '[[quota]]\nip = "10.0.0.1"\nconnection_creation_rate = 5\n[[quota]]\nip = "<default>"\nconnection_creation_rate = 20\n'
    ours = quota_file_of(text, "quotas.toml")
    assert (ours.connection_bound("10.0.0.1"), ours.connection_bound("10.0.0.2")) == (5.0, 20.0)
    assert quota_file_of("", "quotas.toml").connection_bound("10.0.0.1") == UNLIMITED
    both_agree(text)
