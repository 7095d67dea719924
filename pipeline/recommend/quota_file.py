"""Writes a proposal as a quota file, with the reason for each number."""

import json
from collections.abc import Iterable, Iterator

from pipeline.recommend.proposal import TENTHS, Entity, Proposal
from pipeline.text import human_rate

_NAMES = ("user", "client-id", "ip")


def quota_text(proposals: Iterable[Proposal], about: str) -> str:
    """Return the text of a quota file, entity by entity.

    Args:
        proposals: the proposals.
        about: description of the source; it becomes a comment at the top.
    """
    entities: dict[Entity, list[Proposal]] = {}
    for proposal in proposals:
        entities.setdefault(proposal.entity, []).append(proposal)
    lines = [f"# {about}"]
    for entity, own in entities.items():
        lines += ["", "[[quota]]", *_entity_lines(entity)]
        for proposal in own:
            lines += [f"# {_reason(proposal)}", f"{proposal.key} = {_number(proposal)}"]
    return "\n".join(lines) + "\n"


def _entity_lines(entity: Entity) -> Iterator[str]:
    return (f"{name} = {_string(part)}" for name, part in zip(_NAMES, entity, strict=True) if part is not None)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON escapes are valid TOML, but JSON does not escape DEL


def _number(proposal: Proposal) -> str:
    return f"{proposal.bound:.1f}" if proposal.quota_type in TENTHS else str(int(proposal.bound))


def _reason(proposal: Proposal) -> str:
    today = human_rate(proposal.quota_type, proposal.bound_today) if proposal.bound_today is not None else "no quota"
    base = human_rate(proposal.quota_type, proposal.base)
    return f"today {today}; {base} x {proposal.headroom:g}; confidence {proposal.confidence}: {proposal.why}"
