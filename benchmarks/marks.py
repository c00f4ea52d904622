"""marks.py - what the Python benchmarks and their peers share: marks that train functions leave in a directory, and the death between two of them.

A mark is a file NAME_RANK with "pid time". A function that is killed once leaves `first` and waits; started again it leaves `second`. (Peers pickle their
functions by value for workers that do not see this file: they write their marks themselves.)
"""

import os
import signal
import threading
import time


def read_mark(folder, name, seconds=60):
    """(pid, time) of a mark, as soon as it is there."""
    path, deadline = os.path.join(folder, name), time.monotonic() + seconds
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise TimeoutError("the train function did not leave %s within %g s" % (name, seconds))
        time.sleep(0.002)
    with open(path, encoding="utf-8") as file:
        pid, when = file.read().split()
    return int(pid), float(when)


def recovery_seconds(folder, workers, fit, seconds=60):
    """Runs fit() and kills rank 1 when all ranks have left their first mark. (seconds until all have left the second, time of the last first mark)"""
    killed = []

    def killer():
        pids = [read_mark(folder, "first_%d" % rank, seconds)[0] for rank in range(workers)]
        time.sleep(0.2)
        killed.append(time.time())
        os.kill(pids[1], signal.SIGKILL)

    thread = threading.Thread(target=killer, daemon=True)
    thread.start()
    fit()
    thread.join()
    last = {name: max(read_mark(folder, "%s_%d" % (name, rank), 5)[1] for rank in range(workers)) for name in ("first", "second")}
    return last["second"] - killed[0], last["first"]
