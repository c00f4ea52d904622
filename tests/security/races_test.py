"""Another user exchanges a directory or a file for a link and back, as fast as it can, while the victim resumes, stops, reads and removes by that name.

Between a check and its use there must be no moment in which the attacker's program runs as the victim, the victim's files go away, or a private
file of the victim's is shown.
"""

import contextlib
import os
import signal

import attack
import support
from attack import ATTACKER, VICTIM

ROUNDS = 150


def swap(name, own, link):
    """For ever: the name is the attacker's own directory, then a link to the victim's, then nothing."""
    while True:
        try:
            os.rename(own, name)
            os.rename(name, own)
            os.symlink(link, name)
            os.unlink(name)
        except OSError:  # somebody looked at the wrong moment: begin again
            with contextlib.suppress(OSError):
                os.unlink(name) if os.path.islink(name) else os.rename(name, own)


def start_swapping(function, *paths):
    """As the attacker, in a process without exec: the interpreter may lie in a private directory."""
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(ATTACKER)
        os.setuid(ATTACKER)
        function(*paths)
    return pid


def swap_files(link, *paths):
    """For ever: each file of the attacker's is itself, then a link to the victim's file."""
    for path in paths:
        os.link(path, path + ".own")
    while True:
        for path in paths:
            os.symlink(link, path + ".now")
            os.rename(path + ".now", path)
            os.link(path + ".own", path + ".now")
            os.rename(path + ".now", path)


def test_a_name_that_changes(storage):
    attack.need_root()
    place, told = attack.shared(storage), os.path.join(storage, "told")
    os.mkdir(told)
    os.chmod(told, 0o1777)
    attack.failed_run(storage, ATTACKER, "own", "id -u > %s/$(id -u); exit 3" % told)
    victims = attack.failed_run(storage, VICTIM, "victims", "exit 3")
    swapping = start_swapping(swap, *(os.path.join(place, name) for name in ("name", "own", "victims")))
    try:
        done = [attack.call(storage, who, "unisono", *words) for _ in range(ROUNDS // 3)
                for who, words in ((VICTIM, ["run", "--resume", "name"]), (0, ["run", "--resume", "name"]), (VICTIM, ["rm", "--yes", "name"]))]
    finally:
        os.kill(swapping, signal.SIGKILL)
        os.waitpid(swapping, 0)
    assert all(each.returncode > 0 for each in done), [each.stdout for each in done if each.returncode == 0]
    assert any("belongs to another user" in each.stderr for each in done) or any("symbolic link" in each.stderr for each in done), "nothing was met"
    assert os.listdir(told) == [str(ATTACKER)], os.listdir(told)
    assert os.path.exists(os.path.join(victims, "run.json"))


def test_files_that_change(storage):
    """What the victim can read and the attacker cannot does not come out of a command that shows the attacker's run."""
    attack.need_root()
    mark, told = "a-private-text", os.path.join(attack.home(storage, VICTIM), "private")
    with open(told, "w", encoding="utf-8") as file:
        file.write('{"%s": 1, "_training_iteration": 1, "rank": 0, "iteration": 1, "attempt": 1, "metrics": {"%s": 1}, "name": "%s"}\n%s\n' % (mark, mark, mark, mark))
    os.chown(told, VICTIM, VICTIM)
    os.chmod(told, 0o600)
    top = attack.failed_run(storage, ATTACKER, "own", "echo words; unisono report loss=1; exit 3")
    files = [os.path.join(top, name) for name in ("run.json", "results.jsonl", "journal.jsonl", "logs/rank_0.log")]
    swapping = start_swapping(swap_files, told, *files)
    try:
        done = [attack.call(storage, who, "unisono", *words) for _ in range(ROUNDS // 5) for who in (VICTIM, 0)
                for words in (["ls"], ["show", "own"], ["why", "own"], ["logs", "own"], ["plot", "own"], ["stop", "own"])]
    finally:
        os.kill(swapping, signal.SIGKILL)
        os.waitpid(swapping, 0)
    assert any("symbolic link" in each.stdout + each.stderr for each in done), "no link was met"
    assert any("words" in each.stdout for each in done), "no file was met"
    for each in done:
        assert mark not in each.stdout + each.stderr, each
        assert each.returncode >= 0, each


if __name__ == "__main__":
    support.main()
