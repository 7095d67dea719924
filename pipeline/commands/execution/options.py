"""Common options of all commands: the engine, the format of the output, and the explanation of the result.

A command that does not support an option names the remedy, since scripts pass these options to every command.
"""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from pipeline.errors import BadInputError
from pipeline.memory import keep_memory
from pipeline.session_settings import SUBMITTED, SessionSettings, read_conf, read_driver_memory

LOCAL: Final = "local"
SPARK: Final = "spark"
CSV: Final = "csv"
HTML: Final = "html"
FORMS: Final = ("table", "json", CSV, HTML)


@dataclass(frozen=True, slots=True)
class Common:
    """The chosen options.

    Attributes:
        engine: `local` or `spark`; the command supports it.
        asks_for_engine: whether an option, or spark-submit, asks for that engine.
        session: how Spark starts.
        form: format of stdout.
        explain: show the origin of the result.
    """

    engine: str
    asks_for_engine: bool
    session: SessionSettings
    form: str
    explain: bool


def common_options(
    *engines: str, because: str = "", explain: str | None = None, usual: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the common options to a command, which receives them as `common`.

    Args:
        engines: supported engines, the default first.
        because: why there is no other engine; the beginning of a message.
        explain: what `--explain` shows; None: the command has neither this option nor `--format`.
        usual: the default engine, for the help; empty: the first one.

    Raises, when the command is called:
        BadInputError: an unsupported engine, a Spark master without Spark, or an explanation in a format that cannot show it.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(
            *arguments: Any,
            engine: str | None,
            master: str | None,
            form: str = FORMS[0],
            explain: bool = False,
            verbose: bool = False,
            conf: Sequence[str] = (),
            driver_memory: str | None = None,
            **options: Any,
        ) -> None:
            chosen = chosen_engine(engines, engine, master, because)
            session = SessionSettings(master, verbose, read_conf(conf), read_driver_memory(driver_memory))
            _check_session(session, chosen)
            _check_form(form, explain=explain)
            if chosen == LOCAL:
                keep_memory()
            asks = engine is not None or master is not None or bool(session.conf) or session.driver_memory is not None
            function(*arguments, common=Common(chosen, asks or SUBMITTED in os.environ, session, form, explain), **options)

        decorated: Callable[..., None] = command
        for option in reversed(_options(engines, explain, usual)):
            decorated = option(decorated)
        return decorated

    return add


def chosen_engine(engines: tuple[str, ...], engine: str | None, master: str | None, because: str) -> str:
    """Return the engine that runs a command; --master selects Spark.

    Raises:
        BadInputError: the command does not support the engine, or the options contradict each other.
    """
    if engine is not None and engine not in engines:
        raise BadInputError(f"--engine {engine}: {because}; leave it out, or write --engine {engines[0]}")
    if master is not None and SPARK not in engines:
        raise BadInputError(f"--master {master}: {because}; leave it out")
    if master is not None and engine == LOCAL:
        raise BadInputError(f"--master {master}: names a Spark master, which --engine local does not use; leave one of the two out")
    return engine or (SPARK if master is not None else engines[0])


def _check_session(session: SessionSettings, engine: str) -> None:
    """Refuse settings of Spark that would have no effect."""
    for option, given in (("--conf", session.conf), ("--driver-memory", session.driver_memory)):
        if given and engine == LOCAL:
            raise BadInputError(f"{option}: is for Spark, which this command does not start; add --engine spark, or leave it out")
    if session.driver_memory is not None and SUBMITTED in os.environ:
        raise BadInputError("--driver-memory: spark-submit has started the JVM; give --driver-memory to spark-submit")


def _check_form(form: str, *, explain: bool) -> None:
    """Refuse --explain for CSV and pages, which have no place for it. A table shows it, and JSON has the figures in any case."""
    if explain and form in (CSV, HTML):
        raise BadInputError(f"--explain: applies to the table, and --format {form} has none; leave it out, or write --format table or json")


def _options(engines: tuple[str, ...], explain: str | None, usual: str) -> tuple[Callable[[Any], Any], ...]:
    """Return the options. Options that have only one possible value are hidden from the help text."""
    has_spark = SPARK in engines
    where = "Run in this process, or on Spark." if len(engines) > 1 else None
    usual = usual or (f"{engines[0]}; spark with --master" if len(engines) > 1 else engines[0])
    log = click.option("-v", "--verbose", is_flag=True, help="Write warnings and errors of Spark to stderr.")
    conf = click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Setting of Spark; may be repeated.")
    memory = click.option("--driver-memory", metavar="SIZE", help="Heap of Spark's JVM, such as 8g. Default: half of the memory.")
    form = click.option("--format", "form", type=click.Choice(FORMS), default=FORMS[0], show_default=True, help="Format of the output.")
    explained = click.option("--explain", is_flag=True, help=f"{explain} Applies to the table; JSON always includes them.")
    return (
        click.option("--engine", type=click.Choice([LOCAL, SPARK]), hidden=len(engines) == 1, help=where, show_default=usual),
        click.option(
            "--master", hidden=not has_spark, help="URL of the Spark master. Default: all local cores, or the master of spark-submit."
        ),
        *((log, conf, memory) if has_spark else ()),
        *((form, explained) if explain is not None else ()),
    )
