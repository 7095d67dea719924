"""The files of a pod as kubelet mounts them: ConfigMaps and Secrets behind a symbolic link that is replaced at each change."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.kubernetes.manifests import KubernetesObject, named, pod_of, sluice_of
from tests.support.tls.certificates import Authority

CONFIG_MODE = 0o644
LISTENER_HOSTS = ("kafka.example.org", "*.kafka.example.org")
_numbers = itertools.count()


class MountedVolume:
    """A folder of a pod with the content of a ConfigMap or a Secret.

    Args:
        folder: where it is mounted; it is made.
        content: name of each file -> text.
        mode: of the files.
    """

    def __init__(self, folder: Path, content: Mapping[str, str], mode: int = CONFIG_MODE) -> None:
        self._folder = folder
        self._mode = mode
        folder.mkdir(parents=True)
        self.swap(content)
        for name in content:
            (folder / name).symlink_to(f"..data/{name}")

    def swap(self, content: Mapping[str, str]) -> None:
        """Replace the content as kubelet's AtomicWriter does: a new folder, then `..data` points to it."""
        fresh = self._folder / f"..2026_11_27_00_00_00.{next(_numbers)}"
        fresh.mkdir(mode=0o755)
        for name, text in content.items():
            (fresh / name).write_text(text)
            (fresh / name).chmod(self._mode)
        link = self._folder / "..data_tmp"
        link.symlink_to(fresh.name)
        link.rename(self._folder / "..data")


class PodFiles:
    """All files that the Sluice of a manifest reads, below a folder that stands for the root of its container.

    Attributes:
        config: its sluice.toml. Paths in it begin with this folder.
        volumes: each mounted volume by its name in the pod.

    Args:
        objects: the manifest.
        root: an empty folder.
        admin_hosts: further names in the certificate of the admin port.
    """

    def __init__(self, objects: Sequence[KubernetesObject], root: Path, *admin_hosts: str) -> None:
        secrets = secret_contents(root, *admin_hosts)
        volumes = {one["name"]: one for one in pod_of(objects)["spec"]["volumes"]}
        self.volumes: dict[str, MountedVolume] = {}
        for mount in sluice_of(objects)["volumeMounts"]:
            folder, volume = root / mount["mountPath"].lstrip("/"), volumes[mount["name"]]
            if "configMap" in volume:
                content = named(objects, "ConfigMap", volume["configMap"]["name"])["data"]
                moved = {name: text.replace('"/etc/', f'"{root}/etc/').replace('"/var/', f'"{root}/var/') for name, text in content.items()}
                self.volumes[mount["name"]] = MountedVolume(folder, moved)
            elif "secret" in volume:
                self.volumes[mount["name"]] = MountedVolume(
                    folder, secrets[volume["secret"]["secretName"]], volume["secret"]["defaultMode"]
                )
        *_, flag, path = sluice_of(objects)["args"]
        assert flag == "--config"
        self.config = root / path.lstrip("/")


def secret_contents(folder: Path, *admin_hosts: str) -> dict[str, dict[str, str]]:
    """Return the Secrets that docs/how-to/kubernetes.md says how to make.

    Args:
        folder: for the files of keys.
        admin_hosts: names in the certificate of the admin port.
    """
    authority = Authority(folder)

    def pair(name: str, *hosts: str) -> dict[str, str]:
        files = authority.issue(name, hosts=hosts)
        return {"tls.crt": files.certificate.read_text(), "tls.key": files.key.read_text(), "ca.crt": authority.file.read_text()}

    return {
        "sluice-fleet": {"fleet.secret": "f" * 44 + "\n"},
        "sluice-admin-tls": pair("admin", "sluice-admin.kafka.svc", *admin_hosts),
        "sluice-admin-token": {"token": "0123456789abcdef"},
        "sluice-listener-tls": pair("listener", *LISTENER_HOSTS),
        "sluice-upstream": {"password": "password"},
    }
