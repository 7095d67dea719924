"""`sluice run --profile` under one load of the cost table: python -m bench.profile [NAME [SECONDS]]."""

import sys
import time

from bench.cost.cost import LOADS
from bench.harness.arms import start_sluice
from bench.harness.engine import Engine

SECONDS = 5.0


def main() -> None:
    """Run one load through Sluice and print its profile."""
    name = sys.argv[1] if len(sys.argv) > 1 else LOADS[0].name
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
    (chosen,) = [load for load in LOADS if load.name == name] or sys.exit(f"known loads: {', '.join(load.name for load in LOADS)}")
    engine = Engine()
    stub, stub_port = engine.stub(chosen.fetch_record_bytes)
    try:
        sluice = start_sluice(stub_port, engine.folder, flags=["--profile"])
        load = engine.load(chosen.request, sluice.port, conns=chosen.conns, depth=chosen.depth, rate=chosen.rate, churn=chosen.churn)
        time.sleep(seconds)
        load.stop()
        sluice.stop()
        print(f"{name}: {chosen.what}")
        print("\n".join(line for line in sluice.log.read_text().splitlines() if not line.startswith("{")))
    finally:
        stub.stop()
        engine.close()


if __name__ == "__main__":
    main()
