"""A worker that never stops talking, or writes over what it shares: the controller hears its time limit, keeps logs within their cap, and ends."""

import os
import subprocess
import time

import attack  # finds support
import support


def run(storage, command, *words, seconds=40, look=None, limit="1s"):
    """A run of two workers with a time limit; what it said. A controller that does not hear the limit is killed. look() is called all the time."""
    begun = time.monotonic()
    said = os.path.join(storage, "said")
    with open(said, "w", encoding="utf-8") as errors:
        process = subprocess.Popen([support.program("unisono"), "run", "-n", "2", "--name", "rogue", "--max-failures", "0", "--time-limit", limit, "--grace", "1s",
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


def shell(script):
    """Rank 1 sleeps, rank 0 does this."""
    return ["sh", "-c", 'test "$UNISONO_RANK" = 1 && exec sleep 100; ' + script]


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


def test_directories_without_end(storage):
    """Directories that are named faster than they can be copied are dropped, and that is said once. What is on the disk stays what --keep says, and the
    one that is being copied."""
    source, peak = os.path.join(storage, "weights"), [0]
    os.mkdir(source)
    for number in range(50):
        with open(os.path.join(source, str(number)), "wb") as file:
            file.write(bytes(100_000))
    line = '{\\"metrics\\": {\\"loss\\": 1}, \\"checkpoint\\": \\"%s\\"}' % source

    def look():
        peak[0] = max(peak[0], disk(folder(storage)))
    said = run(storage, ["sh", "-c", 'test "$UNISONO_RANK" = 1 && exit 0; yes "%s" | head -n 3000 >&"$UNISONO_REPORT_FD"' % line], "--keep", "2", look=look)
    assert said.count("is dropped") == 1 and "faster than they can be copied" in said, said[-2000:]
    assert peak[0] < 6 * disk(source), "%d bytes on the disk for directories of %d" % (peak[0], disk(source))


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
    for number in ("3", "4294967295"):
        said = forged(storage, number)
        assert "rank 0" in said and "its request to stop is one that no worker makes" in said and "SIGTERM" not in said, said
    said = forged(storage, "2")
    assert "a rank says that it got SIGTERM" in said and "rank 0 was asked to stop (SIGTERM)" in said, said


def test_early_stop_that_is_not_followed(storage):
    """The group was started again and again, deaf to signals and to its time limit, because ranks of every attempt were killed for the first one's wish."""
    assert "succeeded" in forged(storage, "1"), "programs that end by our SIGTERM have stopped"
    said = forged(storage, "1", "deaf")
    assert "did not stop within the grace time" in said and "restart" not in said, said


def test_a_page_of_rubbish(storage):
    """Iterations, checkpoints and times at the end of their range."""
    for number in ("0", "1", "3"):
        said = run(storage, ["python3", script_of(storage, FORGE), number, "all"], limit="1s", seconds=30)
        assert said, number


def test_buffers_that_are_replaced(storage):
    """The memory of a checkpoint is replaced while it is written to the disk. The controller let go of it at once, and could fault; now it writes what is
    there, or says that it is not a checkpoint."""
    for _ in range(2):
        said = run(storage, [os.environ["UNISONO_TEST_SNAPSHOTS"]], "--keep", "1", limit="20s")
        assert "succeeded" in said or "could not save a checkpoint" in said or "without its buffer" in said, said


if __name__ == "__main__":
    support.main()
