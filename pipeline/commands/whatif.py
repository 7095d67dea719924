"""`sluice meter whatif`."""

import click

from pipeline.commands.execution.exit_codes import clear_errors
from pipeline.commands.execution.inputs import INPUT_OF_ENGINE, opener, source_option
from pipeline.commands.execution.options import Common, common_options
from pipeline.commands.execution.outputs import OUTPUT_OF_ENGINE
from pipeline.errors import BadInputError
from pipeline.storage.paths import AnyPath


@click.command()
@source_option
@click.option(
    "--quotas",
    "files",
    type=INPUT_OF_ENGINE,
    required=True,
    multiple=True,
    metavar="FILE",
    help="Quota file to simulate. Repeat the option to compare several files.",
)
@click.option(
    "--mode",
    type=click.Choice(["open", "regroup", "closed"]),
    default="open",
    show_default=True,
    help="open: recorded times and groups; regroup: recorded times, groups of the file; closed: times shifted by the new waits.",
)
@click.option(
    "--pacing",
    type=click.Choice(["window", "paced"]),
    help="Enforce produced and fetched bytes by Kafka's window, or evenly by a schedule. Default: each group as it was recorded.",
)
@click.option(
    "--paced-burst-ms",
    type=click.IntRange(10, 60_000),
    metavar="MS",
    help="Burst of paced groups. Default: that of the recording, or 1000.",
)
@click.option("--out", type=OUTPUT_OF_ENGINE, metavar="DIR", help="Write report.html and summary.json to this directory.")
@clear_errors
@common_options("local", "spark", explain="Print the quota that gives each group its bound, and the recorded groups in it.")
def whatif(
    source: AnyPath | str,
    files: tuple[AnyPath | str, ...],
    mode: str,
    pacing: str | None,
    paced_burst_ms: int | None,
    out: AnyPath | str | None,
    common: Common,
) -> None:
    """Simulate other quotas on recorded decisions, and print how throttling would have changed."""
    import msgspec

    from pipeline.commands.execution.executor import executor
    from pipeline.commands.execution.output import write_output
    from pipeline.quotas.file import read_quota_file
    from pipeline.report.whatif_page import buckets_of, draw_whatif
    from pipeline.whatif.comparison import as_dict, changes_of, lines_of
    from pipeline.whatif.explanation import explained
    from pipeline.whatif.pacing import WINDOW, Pacing
    from pipeline.whatif.work import JOB, outcomes_of, plan_work

    if paced_burst_ms is not None and pacing == WINDOW:
        raise BadInputError("--paced-burst-ms: a window has no burst; leave it out, or use --pacing paced")
    given = (("--in", source), *(("--quotas", file) for file in files), ("--out", out))
    with opener(common.engine, common.session, given) as opened:
        place = None if out is None else opened(out)
        paths = [opened(file) for file in files]
        names, quotas = _names(paths), [read_quota_file(path) for path in paths]
        work = plan_work(opened(source), quotas, mode, pacing=Pacing(pacing, paced_burst_ms))
        with executor(common) as run_all:
            done = run_all(JOB, work)
        found = dict(zip(names, outcomes_of(done, len(quotas)), strict=True))
        changes = [change for name, outcomes in found.items() for change in changes_of(name, outcomes, mode)]
        lines = [*lines_of(changes, mode), *(explained(found, dict(zip(names, quotas, strict=True)), work) if common.explain else ())]

        def page() -> str:
            return draw_whatif(changes, mode, {name: buckets_of(outcomes) for name, outcomes in found.items()})

        write_output(common.form, place, as_dict(changes, mode), lines, [msgspec.structs.asdict(change) for change in changes], page)


def _names(files: list[AnyPath]) -> list[str]:
    short = [file.name for file in files]
    return short if len(set(short)) == len(short) else [str(file) for file in files]
