"""Checks the chain of file sets: each names the one before it in its run, so a missing one is noticed even without decisions."""

from collections.abc import Container, Iterable, Sequence

from metering_format.manifest import Manifest


def broken_link(manifest: Manifest, before: Manifest | None, *, is_cut: bool) -> str | None:
    """Return what is wrong between two file sets of a run that follow each other, or None.

    Args:
        before: None: `manifest` is the first that is there.
        is_cut: retention removed the oldest of the run, so that the first may name one that is gone.
    """
    if before is None:
        return _missing(manifest) if manifest.previous is not None and not is_cut else None
    if before.final:
        return f"{before.file_set} says that it is the last one, and {manifest.file_set} follows"
    if manifest.previous == before.file_set:
        return None
    if manifest.previous is None:
        return f"{manifest.file_set} names no file set before it, and {before.file_set} is there"
    return _missing(manifest)


def broken_links(runs: Iterable[Sequence[Manifest]], cut: Container[tuple[str, str]]) -> list[tuple[Manifest, str]]:
    """Return what is wrong between the file sets of runs: the later one, and a line.

    Args:
        runs: the file sets of each, in order.
        cut: (proxy_id, run_id) of those of which retention removed something.
    """
    found = []
    for manifests in runs:
        for before, manifest in zip((None, *manifests), manifests, strict=False):
            line = broken_link(manifest, before, is_cut=(manifest.proxy_id, manifest.run_id) in cut)
            found += [(manifest, f"run {manifest.run_id}: {line}")] if line else []
    return found


def _missing(manifest: Manifest) -> str:
    return f"{manifest.previous}, the file set before {manifest.file_set}, is in no manifest; it was removed or is late"
