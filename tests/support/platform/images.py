"""The images, built by buildah without a daemon: from a base that mmdebstrap makes, with chroot isolation."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

TARGETS = ("proxy", "meter")
PACKAGES = ("python3.11", "python3.11-venv", "python3-pip", "ca-certificates", "passwd", "python-is-python3")
"""What the Dockerfile needs of a base besides Debian's essential packages. Docker's Python images have it, too."""
SUITE = "bookworm"
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
"""The certificate authorities of this machine. They are mounted while an image is built, and are in no image."""
PIP_SETTINGS = f"[global]\ncert = {AUTHORITIES}\n"
COMMAND_SECONDS_MAX = 1_200


class ImageError(Exception):
    """A command failed; the text has the end of its output."""


class Images:
    """The images of one checkout.

    Args:
        folder: keeps the base, the layers and the logs between runs.
        checkout: the sources to build from.
    """

    def __init__(self, folder: Path, checkout: Path) -> None:
        self._folder = folder
        self._checkout = checkout
        self._containers: list[str] = []

    def build_all(self) -> None:
        """Make the base if it is not there yet, and build both targets.

        Raises:
            ImageError: a tool is missing, or a command failed.
        """
        missing = [tool for tool in ("buildah", "mmdebstrap") if shutil.which(tool) is None]
        if missing:
            raise ImageError(f"{' and '.join(missing)} not found; install Debian's packages of these names")
        if "localhost/base:latest" not in self._names():
            self._make_base()
        for target in TARGETS:
            self._build(target)

    def command(self, *arguments: str) -> list[str]:
        """Return a buildah command with the storage of these images."""
        storage = ("--storage-driver", "overlay", "--root", str(self._folder / "storage"), "--runroot", str(self._folder / "run"))
        return ["buildah", *storage, *arguments]

    def buildah(self, *arguments: str) -> str:
        """Run a buildah command and return what it prints.

        Raises:
            ImageError: it failed.
        """
        return _run(self.command(*arguments), self._folder / "buildah.log")

    def container(self, target: str) -> str:
        """Return the name of a new container of an image."""
        name = self.buildah("from", f"localhost/sluice-{target}").split()[-1]
        self._containers.append(name)
        return name

    def remove_containers(self) -> None:
        """Remove all containers of these images."""
        while self._containers:
            self.buildah("rm", self._containers.pop())

    def config(self, target: str) -> dict[str, Any]:
        """Return the configuration of an image, as Docker reads it."""
        found: dict[str, Any] = json.loads(self.buildah("inspect", "--type", "image", f"localhost/sluice-{target}"))["Docker"]["config"]
        return found

    def megabytes(self, name: str) -> float:
        """Return the size of all layers of an image, in 10^6 bytes."""
        sizes = {one: image["size"] for image in self._listed() for one in image["names"] or ()}
        number, unit = sizes[f"localhost/{name}:latest"].split()
        return float(number) * {"MB": 1, "GB": 1_000}[unit]

    def _listed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.buildah("images", "--json") or "[]")
        return found

    def _names(self) -> set[str]:
        return {name for image in self._listed() for name in image["names"] or ()}

    def _make_base(self) -> None:
        """Make Debian with Python 3.11 as the image `base`."""
        archive = self._folder / "base.tar"
        include = f"--include={','.join(PACKAGES)}"
        _run(["mmdebstrap", "--variant=minbase", include, SUITE, str(archive)], self._folder / "mmdebstrap.log")
        container = self.buildah("from", "scratch").split()[-1]
        self.buildah("add", "--quiet", container, str(archive), "/")
        self.buildah("commit", "--quiet", "--rm", "--format", "docker", container, "localhost/base")
        archive.unlink()

    def _build(self, target: str) -> None:
        """Build one target. In the format of OCI the health check would be lost."""
        settings = self._folder / "pip.conf"
        settings.write_text(PIP_SETTINGS)
        authorities = os.environ.get("SSL_CERT_FILE", AUTHORITIES)
        mounts = ("--volume", f"{authorities}:{AUTHORITIES}:ro", "--volume", f"{settings}:/etc/pip.conf:ro")
        how = ("--isolation", "chroot", "--format", "docker", "--layers", "--build-arg", "BASE=localhost/base", "--target", target)
        command = self.command("build", *how, *mounts, "--tag", f"localhost/sluice-{target}", str(self._checkout))
        _run(command, self._folder / f"build-{target}.log")


def _run(command: list[str], log: Path) -> str:
    """Run a command, with its errors in a log; return what it prints.

    Raises:
        ImageError: it failed.
    """
    with log.open("w") as errors:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=COMMAND_SECONDS_MAX, check=False)
    if done.returncode:
        said = re.sub(r"\s+", " ", done.stdout[-1_000:] + log.read_text()[-1_000:])
        raise ImageError(f"{command[0]} ended with {done.returncode}; {log}: {said}")
    return done.stdout
