"""A check of ServiceMonitors, of which no schema comes with Kubernetes: names and types of monitoring.coreos.com/v1."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_KEY: Final = {"name": str, "key": str, "optional": bool}
_SECRET_OR_CONFIG_MAP: Final = {"secret": _KEY, "configMap": _KEY}
_ENDPOINT: Final = {
    "port": str,
    "targetPort": object,
    "path": str,
    "scheme": str,
    "params": dict,
    "interval": str,
    "scrapeTimeout": str,
    "honorLabels": bool,
    "honorTimestamps": bool,
    "followRedirects": bool,
    "enableHttp2": bool,
    "filterRunning": bool,
    "metricRelabelings": list,
    "relabelings": list,
    "proxyUrl": str,
    "authorization": {"type": str, "credentials": _KEY},
    "tlsConfig": {
        "ca": _SECRET_OR_CONFIG_MAP,
        "cert": _SECRET_OR_CONFIG_MAP,
        "keySecret": _KEY,
        "serverName": str,
        "insecureSkipVerify": bool,
        "minVersion": str,
        "maxVersion": str,
    },
}
_MONITOR: Final = {
    "apiVersion": str,
    "kind": str,
    "metadata": {"name": str, "namespace": str, "labels": dict, "annotations": dict},
    "spec": {
        "jobLabel": str,
        "targetLabels": list,
        "podTargetLabels": list,
        "selector": {"matchLabels": dict, "matchExpressions": list},
        "namespaceSelector": {"any": bool, "matchNames": list},
        "endpoints": [_ENDPOINT],
        "sampleLimit": int,
        "targetLimit": int,
        "labelLimit": int,
        "scrapeClass": str,
        "attachMetadata": dict,
    },
}
_REQUIRED: Final = ("spec.selector", "spec.endpoints", "metadata.name")


def problems(monitor: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a ServiceMonitor: unknown keys, other types, and keys that are missing."""
    found = list(_differences(monitor, _MONITOR, ""))
    if (monitor.get("apiVersion"), monitor.get("kind")) != ("monitoring.coreos.com/v1", "ServiceMonitor"):
        found.append("apiVersion and kind are not monitoring.coreos.com/v1 ServiceMonitor")
    for place in _REQUIRED:
        at: Any = monitor
        for key in place.split("."):
            at = at.get(key) if isinstance(at, Mapping) else None
        if not at:
            found.append(f"{place} is missing")
    return found


def _differences(value: object, shape: object, place: str) -> Iterator[str]:
    if isinstance(shape, Mapping):
        if not isinstance(value, Mapping):
            yield f"{place} is no object"
            return
        for key, inner in value.items():
            if key not in shape:
                yield f"{place}.{key} is not known".lstrip(".")
            else:
                yield from _differences(inner, shape[key], f"{place}.{key}".lstrip("."))
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{place} is no list"
            return
        for number, one in enumerate(value):
            yield from _differences(one, shape[0], f"{place}[{number}]")
    elif isinstance(shape, type) and not isinstance(value, shape):
        yield f"{place} is no {shape.__name__}"
