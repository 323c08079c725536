"""Where ./spark-submit.sh begins: run by its path, and without a look for modules of the caller's or for packages."""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # as of a shell: Ctrl-C ends it, and nothing is said
    sys.path.insert(0, os.path.abspath(__file__).rsplit(os.sep, 4)[0])
    # Where nothing is set up, nothing is left over.
    sys.dont_write_bytecode = not os.path.exists(f"{sys.path[0]}/.venv")

    from jobs.common.submit.main import main

    sys.exit(main(sys.argv[1:]))
