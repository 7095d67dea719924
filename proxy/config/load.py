"""Reads a configuration from its file and the flags of the command line, and reports all problems."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from proxy.config.checks.admin import check_admin_files
from proxy.config.checks.all import check_together, default_name
from proxy.config.checks.fleet import check_fleet_needs
from proxy.config.checks.packages import check_packages
from proxy.config.checks.stores import check_store_secrets
from proxy.config.checks.tls import check_files
from proxy.config.flags import Flags, apply_flags, name_flags
from proxy.config.model import LATER_KEYS, Config
from proxy.config.paths import administration_beside, resolved, stores_beside
from proxy.config.problem import COMMAND_LINE, CONFIGURATION, ConfigProblems, Problem, with_lines
from proxy.config.sections.login import check_secrets
from proxy.config.sections.upstreams import upstreams_of
from proxy.config.toml_reader import CONFIG_BYTES_MAX, Place, keys_of, parse_toml, read_bounded, read_values


class ConfigSource:
    """The file and the flags of one command line; read again at every reload.

    Attributes:
        text: content of the file when it was last read; None: there is no file, or it was not read yet.
    """

    def __init__(self, path: Path | None = None, flags: Flags | None = None) -> None:
        self.path = path
        self.flags = flags or Flags()
        self.text: bytes | None = None

    @property
    def place(self) -> str:
        """The name of the source in problems: the file, or the command line."""
        return COMMAND_LINE if self.path is None else str(self.path)

    def load(self) -> Config:
        """Return the current configuration.

        Raises:
            ConfigProblems: all problems of it.
        """
        problems: list[Problem] = []
        table: dict[str, Any] = {} if self.path is None else parse_toml(self._read(self.path), str(self.path))
        apply_flags(table, self.flags, problems)
        place = Place(self.place, "", problems, LATER_KEYS, keys_of(Config))
        values = read_values(Config, table, place)
        check_together(values, place)
        if problems:
            raise self.located(problems)
        config = self._resolved(Config(**values))
        upstreams = upstreams_of(config)
        check_files(config, [*upstreams, ("quotas", config.quotas)], place)
        logins = [(f"{key}.credentials", upstream.credentials) for key, upstream in upstreams]
        check_secrets([*logins, ("canary", config.canary)], place)
        check_store_secrets(config, place)
        check_fleet_needs(config, place)
        check_packages(config, self.flags, self.place, problems)
        check_admin_files(config, place, self.path)
        if problems:
            raise self.located(problems)
        return config

    def located(self, problems: Sequence[Problem]) -> ConfigProblems:
        """Return problems of this configuration with the name of the file and lines; without a file, with flags in place of keys."""
        named = [problem._replace(file=self.place) if problem.file == CONFIGURATION else problem for problem in problems]
        if self.path is None:
            return ConfigProblems(name_flags(named))
        return ConfigProblems(with_lines(named, self.text or b"", self.place))

    def _read(self, path: Path) -> bytes:
        self.text = read_bounded(path, CONFIG_BYTES_MAX)
        return self.text

    def _resolved(self, config: Config) -> Config:
        listeners = tuple(
            listener if listener.name else msgspec.structs.replace(listener, name=default_name(at))
            for at, listener in enumerate(config.listeners, 1)
        )
        quotas = config.quotas
        if self.path is not None and quotas.path is not None and self.flags.quotas is None:
            quotas = msgspec.structs.replace(quotas, path=self.path.parent / quotas.path)
        metering = config.metering
        if self.path is not None and metering.dir is not None and self.flags.metering is None:
            metering = msgspec.structs.replace(metering, dir=self.path.parent / metering.dir)
        if self.path is not None and metering.key_file is not None:
            metering = msgspec.structs.replace(metering, key_file=self.path.parent / metering.key_file)
        config = msgspec.structs.replace(config, listeners=listeners, quotas=quotas, metering=metering, profile=self.flags.profile)
        if self.path is None:
            return resolved(config, None)
        folder = self.path.parent
        return stores_beside(administration_beside(resolved(config, folder), folder), folder)


class GivenConfig(ConfigSource):
    """The same for a process that receives the text of the file from another process."""

    def __init__(self, path: Path | None, flags: Flags, text: bytes | None) -> None:
        super().__init__(path, flags)
        self.text = text

    def _read(self, path: Path) -> bytes:
        assert self.text is not None, path
        return self.text
