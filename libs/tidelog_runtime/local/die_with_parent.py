"""Runs a command that the kernel ends when its parent ends, so that a crashed test or
demo leaves nothing behind.

A script of its own and not a `preexec_fn`: Python code between fork and exec is not
safe in a process with threads, and gRPC makes threads. Started with the parent's
process id and the command. The parent, to the kernel, is the thread that started it.
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
