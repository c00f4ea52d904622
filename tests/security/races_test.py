"""Another user exchanges a directory for a link and back, as fast as it can, while the victim resumes, stops and removes by that name.

Between a check and its use there must be no moment in which the attacker's program runs as the victim, or the victim's files go away.
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


def start_swapping(*paths):
    """As the attacker, in a process without exec: the interpreter may lie in a private directory."""
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(ATTACKER)
        os.setuid(ATTACKER)
        swap(*paths)
    return pid


def test_a_name_that_changes(storage):
    attack.need_root()
    place, told = attack.shared(storage), os.path.join(storage, "told")
    os.mkdir(told)
    os.chmod(told, 0o1777)
    attack.failed_run(storage, ATTACKER, "own", "id -u > %s/$(id -u); exit 3" % told)
    victims = attack.failed_run(storage, VICTIM, "victims", "exit 3")
    swapping = start_swapping(*(os.path.join(place, name) for name in ("name", "own", "victims")))
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


if __name__ == "__main__":
    support.main()
