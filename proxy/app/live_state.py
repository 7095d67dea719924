"""A read-only view of the running proxy."""

from __future__ import annotations

from proxy.app.control_plane import ControlPlane
from proxy.app.control_plane_state import ControlPlaneState
from proxy.app.data_path import DataPath
from proxy.app.data_path_state import DataPathState
from proxy.config.model import Config


class LiveState(DataPathState, ControlPlaneState):
    """The `ProxyState` of a running `App`, a single process."""

    def __init__(self, config: Config, data_path: DataPath, control: ControlPlane) -> None:
        DataPathState.__init__(self, data_path.gateway, data_path.scopes)
        ControlPlaneState.__init__(self, config, control)
