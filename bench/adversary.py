"""`python -m bench.adversary`: search for programs of a client that pass more than the quotas, for a given time.

python -m bench.adversary [--minutes N] [--goal GOAL]... [--first N] [--keep] [--mutants [NAME]...] [--replay FILE]...
"""

import argparse
import json
import sys
import time
from pathlib import Path

from tests.adversary import program
from tests.adversary.mutants import MUTANTS
from tests.adversary.proxy_fixture import run
from tests.adversary.search import GOALS, Hole, search, wrong_with

SEEDS = Path(__file__).parent.parent / "tests" / "adversary" / "seeds"
EXAMPLES = 400
MUTANT_SEARCHES = 8
"""The number of searches after which a mutant counts as not found."""


def main(arguments: list[str]) -> int:
    """Run what was asked for; return 1 when a hole was found, or a mutant was not."""
    options = _options(arguments)
    if options.replay:
        return _replay(options.replay)
    if options.mutants is not None:
        return _look_for_mutants(options.mutants or list(MUTANTS))
    return _look(options)


def _look(options: argparse.Namespace) -> int:
    end_s = time.monotonic() + 60 * options.minutes
    holes, number, searches = 0, options.first, 0
    while time.monotonic() < end_s:
        for goal in options.goal or GOALS:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                break
            searches += 1
            hole = search(goal, examples=EXAMPLES, number=number, seconds=left_s)
            if hole is not None:
                holes += 1
                _tell(hole, f"{goal}, search {number}")
                if options.keep:
                    _keep(hole, f"{goal}-{number}")
        number += 1
    print(f"{searches} searches of up to {EXAMPLES} programs, {holes} holes")
    return 1 if holes else 0


def _look_for_mutants(names: list[str]) -> int:
    survived = []
    for name in names:
        mutant = MUTANTS[name]
        began_s = time.monotonic()
        found = None
        for number in range(MUTANT_SEARCHES):
            found = search(mutant.goal, examples=EXAMPLES, number=number, spoil=mutant.put_back)
            if found is not None:
                break
        took_s = time.monotonic() - began_s
        if found is None:
            survived.append(name)
            print(f"{name}: NOT FOUND in {took_s:.0f} s ({mutant.says})", flush=True)
        else:
            print(f"{name}: found in {took_s:.1f} s by search {number}: {found.why} ({mutant.says})", flush=True)
    print(f"{len(names) - len(survived)} of {len(names)} causes found again")
    return 1 if survived else 0


def _replay(paths: list[Path]) -> int:
    wrong = 0
    for path in paths:
        outcome = run(program.read(path))
        why = wrong_with(outcome)
        wrong += why is not None
        print("\n".join(outcome.trace))
        print(f"{path.stem}: {why or 'no more than it may'}, {outcome.connections} connections at once")
    return 1 if wrong else 0


def _tell(hole: Hole, where: str) -> None:
    print(f"{where}: {hole.why}")
    print(json.dumps(program.dump(hole.program), indent=1))
    print("\n".join(hole.outcome.trace[-12:]), flush=True)


def _keep(hole: Hole, name: str) -> None:
    path = SEEDS / f"{name}.json"
    path.write_text(json.dumps({"says": hole.why, "program": program.dump(hole.program)}, indent=1) + "\n")
    print(f"kept: {path.name}")


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.adversary", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, metavar="N", help="duration of the search (1)")
    parser.add_argument("--goal", action="append", choices=GOALS, help="the resource that the client tries to get; may be repeated (all)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="seed of the first search (0)")
    parser.add_argument("--keep", action="store_true", help="write each hole to tests/adversary/seeds")
    parser.add_argument("--mutants", nargs="*", choices=list(MUTANTS), metavar="NAME", help="reintroduce known causes, and search for each")
    parser.add_argument("--replay", nargs="+", type=Path, metavar="FILE", help="run seeds, and print each step")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
