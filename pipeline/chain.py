"""Checks the chain of file sets. Each manifest names the file set before it in its run, so a missing file set is detected."""

from collections.abc import Container, Iterable, Sequence

from metering_format.manifest import Manifest


def broken_link(manifest: Manifest, before: Manifest | None, *, is_cut: bool) -> str | None:
    """Return the description of a broken link between two consecutive file sets of a run, or None when the link is intact.

    Args:
        manifest: the later file set.
        before: the earlier file set; None when `manifest` is the first one present.
        is_cut: retention removed the oldest file sets of the run, so the first one present may name a removed one.
    """
    if before is None:
        return _missing(manifest) if manifest.previous is not None and not is_cut else None
    if before.final:
        return f"{before.file_set} is marked as the last one, but {manifest.file_set} follows"
    if manifest.previous == before.last_file_set:
        return None
    if manifest.previous is None:
        return f"{manifest.file_set} names no file set before it, and {before.file_set} is there"
    return _missing(manifest)


def broken_links(runs: Iterable[Sequence[Manifest]], cut: Container[tuple[str, str]]) -> list[tuple[Manifest, str]]:
    """Return every broken link as a pair: the manifest of the later file set, and the description.

    Args:
        runs: the manifests of each run, in decision order.
        cut: (proxy_id, run_id) of runs from which retention removed file sets.
    """
    found = []
    for manifests in runs:
        for before, manifest in zip((None, *manifests), manifests, strict=False):
            line = broken_link(manifest, before, is_cut=(manifest.proxy_id, manifest.run_id) in cut)
            found += [(manifest, f"run {manifest.run_id}: {line}")] if line else []
    return found


def _missing(manifest: Manifest) -> str:
    return f"{manifest.previous}, the file set before {manifest.file_set}, is in no manifest; it was removed or is late"
