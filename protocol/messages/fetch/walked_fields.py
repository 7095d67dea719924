"""Where the varints of Fetch and ShareFetch responses are, from the first byte of a frame to the tail that may contain node endpoints."""

from typing import NamedTuple

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.layout import Field, layout_of
from protocol.limits import RESPONSE_HEAD_BYTES


class Step(NamedTuple):
    """`fixed` bytes, then a varint: the length of the following bytes, or the number of elements that `element` describes.

    `bias` is 1 for compact lengths (n + 1), 0 for those of tag sections. A tag number is a varint whose value is ignored.
    """

    fixed: int
    bias: int
    element: tuple["Step", ...] | None
    is_number: bool = False


_TAGGED_FIELD = (Step(0, 0, None, is_number=True), Step(0, 0, None))
_TAG_SECTION = Step(0, 0, _TAGGED_FIELD)


def _steps_of(fields: tuple[Field, ...]) -> tuple[list[Step], int]:
    """Return the steps over untagged fields of a flexible version, and the number of fixed bytes after the last of them."""
    steps: list[Step] = []
    fixed = 0
    for field in fields:
        if field.tag is not None:
            continue
        if field.fixed_bytes is not None:
            fixed += field.fixed_bytes
        elif field.is_array:
            steps.append(Step(fixed, 1, _struct_of(field)))
            fixed = 0
        elif field.fields:
            first, *others = _struct_of(field)
            steps += [first._replace(fixed=fixed + first.fixed), *others]
            fixed = 0
        else:
            steps.append(Step(fixed, 1, None))
            fixed = 0
    return steps, fixed


def _struct_of(field: Field) -> tuple[Step, ...]:
    if not field.fields:
        raise ValueError(f"{field.name}: arrays of {field.type} are not supported here")
    steps, fixed = _steps_of(field.fields)
    return (*steps, _TAG_SECTION._replace(fixed=fixed))


def _program_of(api: ApiVersion) -> tuple[Step, ...]:
    """Compile the steps from the first byte of a frame to the tail: to the node endpoints where they are an untagged field."""
    layout = layout_of(api.key, "response", api.version)
    steps, fixed = _steps_of(layout.before("NodeEndpoints"))
    header = _TAG_SECTION._replace(fixed=RESPONSE_HEAD_BYTES)
    if fixed:
        raise ValueError(f"{api.name} v{api.version}: fixed fields before the tail")
    return (header, *steps)


_WALKED = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})
PROGRAMS = {api.index: _program_of(api) for api in API_VERSIONS.values() if api.key in _WALKED and api.flexible}
"""The steps over the responses of each API version, by its index."""
