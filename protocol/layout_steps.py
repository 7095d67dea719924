"""Compiles the field tables of `apis.json` into walks in steps, for messages whose arrays may have any number of elements."""

from collections.abc import Callable, Sequence

from protocol.layout import Field, Skip, read_count, skip_field, skip_struct, skip_tags
from protocol.primitives import Buffer
from protocol.steps import Pace, Steps

SkipInSteps = Callable[[Buffer, int, Pace], Steps[int]]
"""Skips fields from an offset on; returns the offset after them."""


def fields_in_steps(fields: Sequence[Field], *, flexible: bool) -> SkipInSteps:
    """Compile a walk over consecutive untagged fields; it pauses between elements of arrays, nested ones too."""
    walks = [_field_in_steps(field, flexible=flexible) for field in fields if field.tag is None]

    def walk(data: Buffer, at: int, pace: Pace) -> Steps[int]:
        for one in walks:
            at = yield from one(data, at, pace)
        return at

    return walk


def struct_in_steps(fields: Sequence[Field], *, flexible: bool) -> SkipInSteps:
    """Compile a walk over a struct: its untagged fields and, in flexible versions, its tag section."""
    to_tags = fields_in_steps(fields, flexible=flexible)

    def walk(data: Buffer, at: int, pace: Pace) -> Steps[int]:
        at = yield from to_tags(data, at, pace)
        return skip_tags(data, at) if flexible else at

    return walk


def _field_in_steps(field: Field, *, flexible: bool) -> SkipInSteps:
    if not field.is_array or not field.fields:
        return _at_once(skip_field(field, flexible=flexible))
    if any(inner.is_array and inner.fields for inner in field.fields):
        return _array_of_arrays(struct_in_steps(field.fields, flexible=flexible), flexible=flexible)
    return _array(skip_struct(field.fields, flexible=flexible), flexible=flexible)


def _at_once(skip: Skip) -> SkipInSteps:
    def walk(data: Buffer, at: int, _pace: Pace) -> Steps[int]:
        return skip(data, at)
        yield

    return walk


def _array(skip: Skip, *, flexible: bool) -> SkipInSteps:
    def walk(data: Buffer, at: int, pace: Pace) -> Steps[int]:
        count, at = read_count(data, at, compact=flexible)
        for _ in range(count):
            at = skip(data, at)
            if pace.due():
                yield
        return at

    return walk


def _array_of_arrays(element: SkipInSteps, *, flexible: bool) -> SkipInSteps:
    def walk(data: Buffer, at: int, pace: Pace) -> Steps[int]:
        count, at = read_count(data, at, compact=flexible)
        for _ in range(count):
            at = yield from element(data, at, pace)
            if pace.due():
                yield
        return at

    return walk
