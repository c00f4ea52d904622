"""A worker that never stops talking, or writes over what it shares: the controller hears its time limit, keeps logs within their cap, and ends."""

import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import attack  # finds support
import support


def run(storage, command, *words, seconds=40, look=None, limit="1s", workers=2):
    """A run of workers with a time limit; what it said. A controller that does not hear the limit is killed. look() is called all the time."""
    begun = time.monotonic()
    said = os.path.join(storage, "said")
    with open(said, "w", encoding="utf-8") as errors:
        process = subprocess.Popen([support.program("unisono"), "run", "-n", str(workers), "--name", "rogue", "--max-failures", "0", "--time-limit", limit, "--grace", "1s",
                                    *words, "--", *command], env=support.environment(storage), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
    try:
        while process.poll() is None:
            assert time.monotonic() - begun < seconds, "it was still there after %d s" % seconds
            if look:
                look()
            time.sleep(0.005)
    finally:
        process.kill()
        process.wait()
    with open(said, encoding="utf-8", errors="replace") as file:
        text = file.read()
    assert process.returncode >= 0, "it crashed: %d %s" % (process.returncode, text)
    return text


def side_by_side(function, items):
    """These runs mostly wait. What they gave, in the order of the items."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(function, items))


def place_for(storage, name):
    place = os.path.join(storage, name)
    os.mkdir(place)
    return place


def shell(script):
    """Rank 1 sleeps, rank 0 does this."""
    return ["sh", "-c", 'test "$UNISONO_RANK" = 1 && exec sleep 100; ' + script]


def shell_all(script):
    """Rank 0 does this first, and both do the rest."""
    first, rest = script.split("; ", 1)
    return ["sh", "-c", 'test "$UNISONO_RANK" = 1 || %s; %s' % (first, rest)]


def script_of(storage, text):
    path = os.path.join(storage, "worker.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def folder(storage):
    return os.path.join(support.environment(storage)["UNISONO_RESULTS"], "rogue", "run_001")


# Two processes that fill the largest pipe, so that it is never empty.
TALK = """
import fcntl, os, sys
to = int(os.environ["UNISONO_REPORT_FD"])
fcntl.fcntl(to, 1031, 1 << 20)
os.fork()
while True:
    os.write(to, b'{"loss": 1}\\n' * 5000)
"""


def test_reports_without_end(storage):
    said = run(storage, shell("exec python3 " + script_of(storage, TALK)), "-q", seconds=25)
    assert "time limit" in said, said


def test_output_without_end(storage):
    """Faster than a copy of the log: only the last part of it is copied, and never more than twice the cap is kept."""
    cap, older, seen = 1 << 20, "rank_0.log.1", []

    def look():
        for name in (older, older + ".tmp"):
            try:
                seen.append(os.stat(os.path.join(folder(storage), "logs", name)).st_blocks * 512)
            except FileNotFoundError:
                continue
    said = run(storage, shell("exec yes"), "-q", "--log-cap", str(cap), look=look, limit="2s")
    assert "time limit" in said, said
    assert seen, "the log was never cut"
    assert max(seen) <= 2 * cap, "%d bytes of older lines" % max(seen)


def disk(top):
    """Bytes on the disk below a directory that changes while it is looked at."""
    total = 0
    for place, _, names in os.walk(top):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def weights(storage, count, size):
    """A directory of files that a worker names as its checkpoint."""
    source = os.path.join(storage, "weights")
    os.mkdir(source)
    for number in range(count):
        with open(os.path.join(source, str(number)), "wb") as file:
            file.write(bytes(size))
    return source


def test_directories_without_end(storage):
    """Directories that are named faster than they can be copied are dropped, and that is said once. What is on the disk stays what --keep says, and the
    one that is being copied."""
    source, peak = weights(storage, 50, 100_000), [0]
    line = '{\\"metrics\\": {\\"loss\\": 1}, \\"checkpoint\\": \\"%s\\"}' % source

    def look():
        peak[0] = max(peak[0], disk(folder(storage)))
    said = run(storage, ["sh", "-c", 'yes "%s" | head -n 3000 >&"$UNISONO_REPORT_FD"' % line], "--keep", "2", look=look, workers=1, limit="40s")
    assert said.count("is dropped") == 1 and "faster than they can be copied" in said, said[-2000:]
    assert peak[0] < 6 * disk(source), "%d bytes on the disk for directories of %d" % (peak[0], disk(source))


# Rank 0 names one directory after the other, each when the one before was copied. Rank 1 reports nothing and waits for the last one.
AHEAD = """
import glob, json, os, sys, time
source, staging, done = sys.argv[1:]
while os.environ["UNISONO_RANK"] == "1":
    if os.path.exists(done):
        sys.exit()
    time.sleep(0.01)
for number in range(1, 61):
    place = "%s_%d" % (source, number)
    os.mkdir(place)
    for name in os.listdir(source):
        os.link(os.path.join(source, name), os.path.join(place, name))
    with open(os.path.join(place, "number_%d" % number), "w"):
        pass
    os.write(int(os.environ["UNISONO_REPORT_FD"]), json.dumps({"metrics": {"loss": 1}, "checkpoint": place}).encode() + b"\\n")
    while not glob.glob(os.path.join(staging, "*", "number_%d" % number)):
        time.sleep(0.002)
with open(done, "w"):
    pass
"""


def test_directories_that_wait(storage):
    """A rank that is far ahead of another does not fill the disk with checkpoints that wait for it: the oldest and the newest are kept, in their order."""
    attack.need_root()
    small = os.path.join(storage, "small")
    os.mkdir(small)
    source = weights(storage, 5, 400_000)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", small], check=False, capture_output=True).returncode:
        raise support.Skip("cannot mount a file system")
    try:
        staging, least = os.path.join(folder(small), ".staging"), [64 << 20]

        def look():
            room = os.statvfs(small)
            least[0] = min(least[0], room.f_bavail * room.f_frsize)
        said = run(small, ["python3", script_of(storage, AHEAD), source, staging, os.path.join(storage, "done")], "--keep", "all", look=look, limit="90s",
                   seconds=100)
        assert "succeeded" in said, said[-2000:]
        assert said.count("wait for rank 1 to report their iterations, and half of the disk's free space is used") == 1, said[-2000:]
        assert least[0] > 16 << 20, "%d bytes were left" % least[0]
        top, iterations = os.path.join(folder(small), "checkpoints"), []
        for name in sorted(os.listdir(top)):
            with open(os.path.join(top, name, ".unisono-manifest.json"), encoding="utf-8") as file:
                iterations.append(json.load(file)["iteration"])
        assert iterations[0] == 1 and iterations[-1] == 60 and len(iterations) < 20 and iterations == sorted(iterations), iterations
    finally:
        subprocess.run(["umount", small], check=True)


# Rank 0 names many directories at once, so that some are dropped. Rank 1 names one for each iteration once rank 0 is done.
PARTS = """
import json, os, sys, time
to, rank = int(os.environ["UNISONO_REPORT_FD"]), int(os.environ["UNISONO_RANK"])
place, done = sys.argv[1] + "/part_%d" % rank, sys.argv[1] + "/done"
os.mkdir(place)
with open(place + "/rank_%d" % rank, "w") as file:
    file.write("x")
line = json.dumps({"metrics": {"loss": 1}, "checkpoint": place}).encode() + b"\\n"
if rank == 0:
    os.write(to, line * 200)
    with open(done, "w"):
        pass
    sys.exit()
while not os.path.exists(done):
    time.sleep(0.01)
results = sys.argv[2] + "/results.jsonl"
while True:
    with open(results) as file:
        if sum(1 for row in file if '"rank": 0' in row or '"rank":0' in row) >= 200:
            break
    time.sleep(0.01)
for _ in range(200):
    os.write(to, line)
    time.sleep(0.005)
"""


def test_parts_of_dropped_checkpoints(storage):
    """When one rank's directory is dropped, the other rank's directory for that iteration does not become a checkpoint with a part missing."""
    said = run(storage, ["python3", script_of(storage, PARTS), storage, folder(storage)], "--keep", "all", limit="60s", seconds=90)
    assert "succeeded" in said and "faster than they can be copied" in said, said[-2000:]
    top = os.path.join(folder(storage), "checkpoints")
    whole = [name for name in os.listdir(top) if name.startswith("checkpoint_")]
    parts = {name: sorted(part for part in os.listdir(os.path.join(top, name)) if part.startswith("rank_")) for name in whole}
    assert whole and all(found == ["rank_0", "rank_1"] for found in parts.values()), parts


# Writes into the page that a worker shares with the controller (src/group/page.h): magic, version, owner, then the request to stop.
FORGE = """
import mmap, os, signal, struct, sys, time
page = mmap.mmap(int(os.environ["UNISONO_SESSION"].split(":")[4]), 4096)
signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in sys.argv else signal.SIG_DFL)
if os.environ["UNISONO_RANK"] == "0":
    if "all" in sys.argv:
        page[16:4096] = b"\\xff" * 7 + b"\\x7f" + b"\\xff" * 4072
    struct.pack_into("<I", page, 12, int(sys.argv[1]))
os.write(int(os.environ["UNISONO_REPORT_FD"]), b'{"loss": 1}\\n')
time.sleep(100)
"""


def forged(storage, *words):
    return run(storage, ["python3", script_of(storage, FORGE), *words], limit="60s", seconds=30)


def test_forged_requests(storage):
    """A number that is no request names the worker that wrote it; one that says SIGTERM is that rank's word, not a signal that we got."""
    *unknown, sigterm = side_by_side(lambda number: forged(place_for(storage, number), number), ("3", "4294967295", "2"))
    for said in unknown:
        assert "rank 0" in said and "its request to stop is one that no worker makes" in said and "SIGTERM" not in said, said
    assert "a rank says that it got SIGTERM" in sigterm and "rank 0 was asked to stop (SIGTERM)" in sigterm, sigterm


def test_early_stop_that_is_not_followed(storage):
    """The group was started again and again, deaf to signals and to its time limit, because ranks of every attempt were killed for the first one's wish."""
    ended, said = side_by_side(lambda words: forged(place_for(storage, str(len(words))), *words), (["1"], ["1", "deaf"]))
    assert "succeeded" in ended, "programs that end by our SIGTERM have stopped"
    assert "did not stop within the grace time" in said and "restart" not in said, said


def test_a_page_of_rubbish(storage):
    """Iterations, checkpoints and times at the end of their range."""
    script, numbers = script_of(storage, FORGE), ("0", "1", "3")
    assert all(side_by_side(lambda number: run(place_for(storage, number), ["python3", script, number, "all"], limit="1s", seconds=30), numbers))


def test_buffers_that_are_replaced(storage):
    """The memory of a checkpoint is replaced while it is written to the disk. The controller let go of it at once, and could fault; now it writes what is
    there, or says that it is not a checkpoint."""
    for _ in range(2):
        said = run(storage, [os.environ["UNISONO_TEST_SNAPSHOTS"]], "--keep", "1", limit="20s")
        assert "succeeded" in said or "could not save a checkpoint" in said or "without its buffer" in said, said


# Puts a FIFO, or a directory, in place of a file of its own run, and ends.
REPLACE = """
import os, sys, time
what, path = sys.argv[1], os.path.join(os.environ["UNISONO_RUN_DIR"], sys.argv[2])
os.write(int(os.environ["UNISONO_REPORT_FD"]), b'{"loss": 1}\\n')
if os.path.lexists(path) or "log" in path:
    if not os.path.isdir(path):
        os.unlink(path)
        os.mkfifo(path) if what == "fifo" else os.mkdir(path)
sys.exit(3)
"""


def test_files_that_are_replaced(storage):
    """A worker puts a FIFO in place of its log, or of another file of its run, and dies: the controller looked for the last lines there, deaf to all signals,
    and so did the agent that started the next attempt."""
    script = script_of(storage, REPLACE)

    def one(item):
        what, name = item
        place = place_for(storage, what + name.replace("/", "_"))
        said = run(place, ["python3", script, what, name], "--max-failures", "1", "--sink", "csv,json", limit="20s", seconds=15, workers=1)
        assert "exited with code 3" in said, (what, name, said[-2000:])
    side_by_side(one, [(what, name) for what in ("fifo", "folder")
                       for name in ("logs/rank_0.log", "results.jsonl", "run.json", "journal.jsonl", "progress.csv", "result.json")])
    # Without -q the command itself has the log open, so that the agent does not wait for a reader.
    run(storage, ["python3", script, "fifo", "logs/rank_0.log"], "--max-failures", "1", "-q", limit="20s", seconds=15, workers=1)


def test_requests_that_are_replaced(storage):
    """A worker puts a FIFO, a directory or nonsense where `unisono scale` writes its request: the controller waited for a writer of the FIFO, deaf to its limits."""
    program = os.path.join(os.environ["UNISONO_BUILD"], "examples", "engine", "engine_digits_mlp")
    if not os.path.exists(program):
        raise support.Skip("needs the engine")

    def one(what):
        said = run(place_for(storage, what.split()[0]), shell_all(what + "; exec %s" % program), "--workers", "1:2", "-n", "2", limit="2s", seconds=20)
        assert "failed" in said or "stopped" in said or "succeeded" in said, (what, said[-2000:])
        assert said.count("does not have a number") <= 2, said[-2000:]
    side_by_side(one, ["mkfifo $UNISONO_RUN_DIR/.scale", "mkdir $UNISONO_RUN_DIR/.scale", "ln -s /dev/zero $UNISONO_RUN_DIR/.scale",
                       "echo 1e9 >$UNISONO_RUN_DIR/.scale", "head -c 9999999 /dev/zero >$UNISONO_RUN_DIR/.scale"])


def attacked(storage, how, *options):
    """What a run said in which rank 0 attacks what it shares with the controller (rogue_ring.c)."""
    return run(place_for(storage, how), [os.environ["UNISONO_TEST_RING"], how], *options, seconds=25)


def test_a_reason_that_does_not_exist(storage):
    """The word in which a worker says why the number of workers stays is the place of a sentence in a table."""
    said = attacked(storage, "fixed", "--workers", "1:3")
    assert "time limit" in said, said[-2000:]


def test_forged_frames(storage):
    """A ring that only says "go on", and a message whose memory is cut off while it is read: the run names the worker. The second was a SIGBUS."""
    for how, why in (("skip", "in the report ring of a worker is damaged"), ("cut", "a large message came in a buffer that can change")):
        said = attacked(storage, how)
        assert "rank 0" in said and "broke the protocol" in said and why in said, (how, said[-2000:])


def test_the_dictionary_to_resume_from(storage):
    """All ranks get the same memory, which one of them could write or cut off for the others."""
    said = run(storage, [os.environ["UNISONO_TEST_RING"], "resume"], "--keep", "none", "--max-failures", "1", workers=1, limit="20s")
    assert "restart 1" in said and "succeeded" in said, said[-2000:]


def test_rings_that_are_never_empty(storage):
    """Reports of a megabyte as fast as they are read, or by a child that goes on after the worker's end, with an eventfd that is made to block: the
    controller was deaf to its time limit and to SIGTERM. Beside them, because it only waits: a rank that never reads its mail costs the controller one
    timeout, not one for each message."""
    with ThreadPoolExecutor() as beside:
        mail = beside.submit(attacked, storage, "mail")
        for how in ("report", "child", "events"):
            said = attacked(storage, how)
            assert "time limit" in said, (how, said[-2000:])
        said = mail.result()
    assert "time limit" in said and said.count("to rank 1 was lost") == 1, said[-2000:]


if __name__ == "__main__":
    support.main()
