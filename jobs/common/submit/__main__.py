"""The start of ./spark-submit.sh, which runs this file by its path, isolated from the caller's modules and packages."""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # as in a shell: Ctrl-C ends it silently
    sys.path.insert(0, os.path.abspath(__file__).rsplit(os.sep, 4)[0])
    # Write no files into a checkout that is not set up.
    sys.dont_write_bytecode = not os.path.exists(f"{sys.path[0]}/.venv")

    from jobs.common.submit.main import main

    sys.exit(main(sys.argv[1:]))
