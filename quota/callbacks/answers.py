"""Checks the return values of a user's callback. An invalid value is a fault and never means "no limit"."""

import math
from collections.abc import Mapping
from types import CoroutineType
from typing import Any, Final

from quota.errors import QuotaError

TAGS_MAX: Final = 16


class CallbackAnswerError(QuotaError):
    """An invalid return value: wrong type, not a number, zero or less."""


def read_tags(answer: Any) -> dict[str, str]:
    """Return the tags; valid are mappings of str to str with at most 16 entries."""
    if not isinstance(answer, Mapping):
        raise _wrong(answer, "a mapping of tags")
    tags = dict(answer)
    if len(tags) > TAGS_MAX:
        raise CallbackAnswerError(f"{len(tags)} tags, at most {TAGS_MAX} are allowed")
    for key, value in tags.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise CallbackAnswerError(f"tag {key!r:.100} = {value!r:.100} is not text")
    return tags


def read_limit(answer: Any) -> float | None:
    """Return the limit; valid are None and finite numbers above zero."""
    if answer is None:
        return None
    if isinstance(answer, bool) or not isinstance(answer, int | float):
        raise _wrong(answer, "a number or None")
    limit = float(answer)
    if not (math.isfinite(limit) and limit > 0.0):
        raise CallbackAnswerError(f"limit {limit!r} is not a finite number above zero; None means unlimited")
    return limit


def read_bool(answer: Any) -> bool:
    """Return the bool; other types are invalid and are not converted."""
    if not isinstance(answer, bool):
        raise _wrong(answer, "True or False")
    return answer


def ignore(answer: Any) -> None:
    """Accept any return value except a coroutine, whose `async` method has not run."""
    if isinstance(answer, CoroutineType):
        raise _wrong(answer, "nothing")


def _wrong(answer: Any, wanted: str) -> CallbackAnswerError:
    if isinstance(answer, CoroutineType):
        answer.close()  # closed, since Python warns about a coroutine that is not awaited
        return CallbackAnswerError(f"the method is async; an ordinary method that returns {wanted} is needed")
    return CallbackAnswerError(f"{type(answer).__name__} instead of {wanted}")
