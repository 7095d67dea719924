"""Values of options that several benches have."""


def numbers(text: str) -> list[int]:
    """Return the numbers of a text such as `1,4`.

    Raises:
        ValueError: a part is no number.
    """
    return [int(part) for part in text.split(",")]
