"""The command `sluice`: obeys SIGTERM, then imports the commands.

The import takes 0.1 s and more. A service manager may end a service that it has just started: without a handler the process would end by
the signal, which counts as a failure; as the first process of a container it would ignore the signal. So this module imports little itself.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code; an error is printed as one line, without a traceback.

    Args:
        arguments: those of the command line by default; only with these does `run` obey SIGTERM before its event loop does.
    """
    if arguments is None and sys.argv[1:2] == ["run"]:
        signal.signal(signal.SIGTERM, _end)
    from sluice_cli import root  # imported here, see above

    root.main(arguments)


def _end(_signal: int, _frame: FrameType | None) -> None:
    """Log the end, and exit: nothing was accepted, and no file is open for writing.

    SystemExit would be lost in an import or a callback that catches all exceptions. Imports of a logger could be under way.
    """
    now_s = time.time()
    when = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now_s))}.{int(now_s * 1_000) % 1_000:03}+00:00"
    os.write(sys.stderr.fileno(), f'{{"time":"{when}","level":"info","event":"terminated"}}\n'.encode())
    os._exit(0)


if __name__ == "__main__":
    main()
