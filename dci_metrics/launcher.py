"""`--num-processes`: the same command in several processes, which know by their environment that they are they.

Nothing is imported here that takes time: the process that starts the others does nothing else.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence


def launch(command: Sequence[str], processes: int) -> int:
    """Run `dci` with these arguments in several processes on this machine.

    Returns:
        0, or the exit code of the first process that failed, after which the others are ended.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []
    for rank in range(processes):
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        where |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
        environment = os.environ | where | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        running.append(subprocess.Popen([sys.executable, "-m", "dci_metrics", *command], env=environment))
    try:
        waiting = list(running)
        while waiting:
            for process in waiting[:]:
                try:
                    code = process.wait(timeout=0.1)
                except subprocess.TimeoutExpired:
                    continue
                waiting.remove(process)
                if code != 0:
                    return code
        return 0
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
