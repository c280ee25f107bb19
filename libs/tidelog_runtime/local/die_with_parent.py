"""Runs a command that the kernel kills when its parent ends.

A crashed test or demo thus leaves no processes behind. This is a script and not a `preexec_fn`,
because Python code between fork and exec is unsafe in a process with threads, and gRPC makes
threads.

The arguments are the parent's process id and the command. For the kernel, the parent is the
thread that started this process.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def main() -> None:
    parent_id, command = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    # The parent may have ended before the call above.
    if os.getppid() != parent_id:
        raise SystemExit("the process that started this one has ended")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
