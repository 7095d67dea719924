"""Entities and principals are compared, printed and encoded as in Kafka."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.entity import ANONYMOUS, DEFAULT, ClientQuotaEntity, ConfigEntityType, EntityPart, KafkaPrincipal, desanitize, sanitize
from quota.errors import SanitizedNameError


def test_a_principal_prints_as_kafka_prints_it() -> None:
    """A principal prints as type, colon, name."""
    assert str(KafkaPrincipal("User", "alice")) == "User:alice"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


def test_a_client_called_default_is_not_the_default_client() -> None:
    """An entity with the literal name `<default>` differs from the default entity, and no other name has that distinction."""
    literal = ClientQuotaEntity(client_id=DEFAULT, literal_client_id=True)
    assert literal != ClientQuotaEntity(client_id=DEFAULT)
    assert (literal.client_id_is_default, ClientQuotaEntity(client_id=DEFAULT).client_id_is_default) == (False, True)
    assert ClientQuotaEntity("alice", literal_user=True) == ClientQuotaEntity("alice")
    assert len({ClientQuotaEntity("alice", literal_user=True), ClientQuotaEntity("alice")}) == 1


def test_parts_name_the_user_first() -> None:
    """The parts of an entity are the user and then the client-id with their types, and a default part is named `<default>`."""
    assert ClientQuotaEntity("alice", DEFAULT).parts == (
        EntityPart(ConfigEntityType.USER, "alice"),
        EntityPart(ConfigEntityType.DEFAULT_CLIENT_ID, "<default>"),
    )
    assert ClientQuotaEntity(DEFAULT, "c").parts[0].type is ConfigEntityType.DEFAULT_USER
    assert str(ClientQuotaEntity("alice", DEFAULT)) == "user alice, client-id <default>"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_names_survive_encoding(name: str) -> None:
    """An encoded name decodes to itself and contains safe characters only."""
    encoded = sanitize(name)
    assert desanitize(encoded) == name
    assert all(char.isascii() and (char.isalnum() or char in ".-_%") for char in encoded)


@given(st.text())
def test_decoding_accepts_or_refuses(encoded: str) -> None:
    """Any text is either decoded or refused with `SanitizedNameError`."""
    with contextlib.suppress(SanitizedNameError):
        assert isinstance(desanitize(encoded), str)


@pytest.mark.parametrize("encoded", ["%", "%4", "a%4gb", "%%41", "100%"])
def test_malformed_escapes_are_refused(encoded: str) -> None:
    """A percent sign without two hexadecimal digits is refused."""
    with pytest.raises(SanitizedNameError):
        desanitize(encoded)
