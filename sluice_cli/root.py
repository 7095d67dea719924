"""The commands of the command line. Errors are one line each on stderr; exit codes: 0 done, 1 a check failed, 2 bad input or usage."""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from proxy.app.identities import make_builder
from proxy.base.errors import StartError
from proxy.base.packages import METERING, missing, need, remedy
from proxy.base.printable import printable
from proxy.config.callback import try_callback
from proxy.config.checks.all import advice_on
from proxy.config.flags import Flags
from proxy.config.load import ConfigSource
from proxy.config.model import Config
from proxy.config.problem import ConfigProblems, Problem
from proxy.config.toml_reader import read_toml
from proxy.quota_store.file.advice import advice_on_quotas
from proxy.quota_store.file.store import QUOTA_FILE_BYTES_MAX, read_quota_file
from proxy.telemetry import log
from sluice_cli.examples_command import examples
from sluice_cli.fleet import fleet
from sluice_cli.health import health

BAD_INPUT: Final = 2

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


@click.group(context_settings=CONTEXT, no_args_is_help=False)
@click.version_option(package_name="kafka-sluice", prog_name="sluice")
def cli() -> None:
    """Sluice: a Kafka-protocol proxy that enforces client quotas in front of brokers."""


@cli.command()
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE", help="Configuration file. Options of the command line override it."
)
@click.option("--listen", metavar="HOST:PORT", help="Address that clients connect to. Broker n gets the port PORT + 1 + n.")
@click.option("--upstream", metavar="HOST:PORT[,...]", help="Bootstrap addresses of the brokers.")
@click.option("--advertise", metavar="HOST", help="Host to advertise to clients. Default: the host of --listen.")
@click.option("--sidecar", is_flag=True, help="Run as a sidecar: one listener for one broker, without rewriting addresses.")
@click.option("--quotas", metavar="FILE", help="Quota file.")
@click.option("--enforcement", metavar="MODE", help="Enforcement mode: delay, mute or observe.")
@click.option("--admin", metavar="HOST:PORT", help="Serve /metrics, /healthz, /readyz, /quotas and more at this address.")
@click.option("--metering", metavar="DIR", help="Write metering files to this directory.")
@click.option(
    "--quota-admin",
    metavar="User:NAME",
    multiple=True,
    help="Principal that may read and change quotas through Kafka's APIs. May be repeated.",
)
@click.option("--workers", metavar="N|auto", help="Number of worker processes; auto starts one for each available core.")
@click.option("--profile", is_flag=True, help="Profile the run, and print the profile when it ends.")
def run(config: Path | None, **flags: Any) -> None:
    """Run the proxy. SIGHUP reloads the configuration, SIGUSR2 upgrades in place, SIGTERM drains; a second SIGTERM exits at once."""
    source = ConfigSource(config, Flags(**flags))
    loaded = _check(source)
    from proxy.workers.run import process_starter, run_sluice  # imported here, since `check-config` and --help need no event loop

    with process_starter(loaded) as spawn:
        handler = log.start_logging(loaded.log.level)
        try:
            sys.exit(run_sluice(source, spawn))
        finally:
            log.stop_logging(handler)


@cli.command()
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Configuration file of the running Sluice.")
@click.option(
    "--runtime-dir", type=click.Path(path_type=Path), metavar="DIR", help="Runtime directory of the running Sluice, without --config."
)
def upgrade(config: Path | None, runtime_dir: Path | None) -> None:
    """Replace the running Sluice with the installed version without refusing connections. Equivalent to SIGUSR2 to the supervisor."""
    from proxy.app.app import UPGRADE_REMEDY  # only here, as in `run`
    from proxy.workers.handover.ask import ask_upgrade, folder_of
    from proxy.workers.run import is_supervised

    loaded = None if config is None else _check(ConfigSource(config))
    if loaded is not None and not is_supervised(loaded):
        raise StartError(UPGRADE_REMEDY)
    ended = ask_upgrade(folder_of(loaded, runtime_dir))
    if ended.pid is None:
        click.echo(f"sluice: not upgraded, the running Sluice continues: {printable(ended.problem, 1_000)}", err=True)
        sys.exit(1)
    click.echo(f"upgraded: process {ended.pid} accepts; the old one drains its connections and ends")


@cli.command("meter", add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def meter(arguments: tuple[str, ...]) -> None:
    """Analyse metering files: usage, validation of throttle decisions, simulation of other quotas, recommendations."""
    if lacking := missing(METERING):
        _fail([f"sluice meter {need(lacking)}; {remedy(lacking)}"])
    from sluice_cli import meter as commands  # imported here, since only metering files need Arrow

    group = commands.with_writers()
    group.main(args=list(arguments), prog_name="sluice meter", standalone_mode=False)  # main prints an error in one line


@cli.command("quotas", add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def quotas_command(arguments: tuple[str, ...]) -> None:
    """Read and change client quotas of a cluster, at brokers or through Sluice."""
    from sluice_cli.quotas.command import quotas as group  # imported here, since the proxy does not need it

    group.main(args=list(arguments), prog_name="sluice quotas", standalone_mode=False)


@cli.command("top", add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def top_command(arguments: tuple[str, ...]) -> None:
    """Show who waits now, and why: the live page in a terminal."""
    from sluice_cli.top.command import top  # imported here, since the proxy does not need it

    top.main(args=list(arguments), prog_name="sluice top", standalone_mode=False)


@cli.command("check-config")
@click.argument("file", type=click.Path(path_type=Path), metavar="sluice.toml")
def check_config(file: Path) -> None:
    """Validate a configuration with its quota file and callback, or a quota file, and print all problems."""
    if _is_quota_file(file):
        content = read_quota_file(file)
        count = len(content.quotas)
        click.echo(f"{file}: valid ({count} {'entity' if count == 1 else 'entities'})")
        _advise(file, advice_on_quotas(content))
        return
    config = _check(ConfigSource(file))
    click.echo(f"{file}: valid ({len(config.listeners)} {'listener' if len(config.listeners) == 1 else 'listeners'})")
    _advise(file, advice_on(config))
    if config.quotas.path is not None:
        content = read_quota_file(config.quotas.path, any_sign=config.quotas.profile == "zookeeper")
        _advise(config.quotas.path, advice_on_quotas(content, [listener.name for listener in config.listeners]))


def _advise(file: Path, lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(f"{file}: {line}")


@cli.command()
@click.option("--seconds", type=click.IntRange(5, 120), default=30, show_default=True, help="Running time of the clients, in seconds.")
@click.option(
    "--svg", type=click.Path(path_type=Path, dir_okay=False), default="demo.svg", show_default=True, help="Write the diagram to this file."
)
@click.option(
    "--proxies",
    type=click.IntRange(1, 4),
    default=1,
    show_default=True,
    help="Number of proxies; several are a fleet with one budget.",
)
@click.option(
    "--pacing",
    type=click.Choice(["window", "paced"]),
    default="window",
    show_default=True,
    help="How bytes are held to their bound: by Kafka's window, or evenly.",
)
def demo(seconds: int, svg: Path, proxies: int, pacing: str) -> None:
    """Run a demo with a mock cluster, the proxy and four clients, then print the results and write a diagram."""
    from proxy.demo import main as run_demo

    sys.exit(run_demo(seconds, svg, proxies, paced=pacing == "paced"))


cli.add_command(examples)
cli.add_command(fleet)
cli.add_command(health)


def _is_quota_file(file: Path) -> bool:
    """Whether the file contains quotas and nothing else; an unreadable file is checked as a configuration."""
    try:
        return {"quota"} <= set(read_toml(file, bytes_max=QUOTA_FILE_BYTES_MAX)) <= {"quota", "switch", "pacing"}
    except ConfigProblems:
        return False


def _check(source: ConfigSource) -> Config:
    """Return the configuration when it, its quota file and its callback are valid.

    Raises:
        ConfigProblems: all problems of the three.
    """
    _import_beside(source.path)
    problems: list[Problem] = []
    config: Config | None = None
    try:
        config = source.load()
    except ConfigProblems as found:
        problems += found.problems
    if config is not None:
        problems += _problems_beyond(config, source)
    if config is None or problems:
        raise source.located(problems)
    return config


def _import_beside(file: Path | None) -> None:
    """Make the folder of the configuration file importable for callbacks and principal builders."""
    folder = "" if file is None else str(file.resolve().parent)
    if folder and folder not in sys.path:
        sys.path.append(folder)


def _problems_beyond(config: Config, source: ConfigSource) -> list[Problem]:
    problems: list[Problem] = []
    if config.quotas.path is not None:
        try:
            read_quota_file(config.quotas.path, any_sign=config.quotas.profile == "zookeeper")
        except ConfigProblems as found:
            problems += found.problems
    for listener in config.listeners:
        if listener.principal_builder is not None:
            try:
                make_builder(listener.principal_builder, listener.principal_builder_settings, str(source.path))
            except ConfigProblems as found:
                problems += found.problems
    if config.callback is not None:
        try:
            try_callback(config.callback.class_name, config.callback.settings, str(source.path))
        except ConfigProblems as found:
            problems += found.problems
    return problems


def _fail(lines: Sequence[str]) -> NoReturn:
    for line in lines:
        click.echo(f"sluice: {line}", err=True)
    sys.exit(BAD_INPUT)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code; an error is printed as one line, without a traceback."""
    sys.path.insert(0, os.getcwd())  # as with `python -m`
    try:
        code = cli.main(args=None if arguments is None else list(arguments), prog_name="sluice", standalone_mode=False)
    except ConfigProblems as problems:
        _fail(problems.lines())
    except StartError as error:
        _fail([printable(str(error), 1_000)])
    except click.UsageError as error:
        _fail(
            [
                printable(
                    f"{' '.join(error.format_message().split())} ({error.ctx.command_path if error.ctx else 'sluice'} --help explains)",
                    1_000,
                )
            ]
        )
    except click.ClickException as error:
        _fail([printable(" ".join(error.format_message().split()), 1_000)])
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)
