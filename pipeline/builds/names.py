"""Names of tables and namespaces in a catalog, as options give them."""

from pipeline.errors import BadInputError


def identifier_of(option: str, text: str) -> tuple[str, ...]:
    """Return the parts of a name: the namespaces, and perhaps a table.

    Raises:
        BadInputError: a part is empty.
    """
    parts = tuple(text.split("."))
    if not all(parts):
        raise BadInputError(f'{option}: "{text}" is no name; write names with a dot between them, such as sluice.decisions')
    return parts
