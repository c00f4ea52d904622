"""Another user of the machine leaves runs in a storage directory that both may write to (mode 1777).

Nothing in them is acted on: no program is started, no process signalled, no file written or removed elsewhere. One's own runs work as anywhere.
"""

import json
import os
import signal
import subprocess
import sys

import attack
import support
from attack import ATTACKER, VICTIM


def trap(storage):
    """A failed run of the attacker's whose program tells who runs it."""
    told = os.path.join(storage, "told")
    os.mkdir(told)
    os.chmod(told, 0o1777)
    directory = attack.failed_run(storage, ATTACKER, "trap", "id -u > %s/$(id -u); exit 3" % told)
    assert os.listdir(told) == [str(ATTACKER)]
    return directory, told


def test_resume_refuses_the_run_of_another_user(storage):
    attack.need_root()
    directory, told = trap(storage)
    for victim in (0, VICTIM):
        for words in (["trap"], ["trap/run_001"], [directory], ["trap", "--storage", attack.shared(storage)]):
            done = attack.call(storage, victim, "unisono", "run", "--resume", *words)
            attack.assert_refused(done, "belongs to another user")
        assert os.listdir(told) == [str(ATTACKER)], "the attacker's program ran as %s" % os.listdir(told)


def test_resume_without_a_name_passes_over_others(storage):
    attack.need_root()
    _, told = trap(storage)
    attack.assert_refused(attack.call(storage, VICTIM, "unisono", "run", "--resume"), "no stopped, failed or interrupted run")
    attack.failed_run(storage, VICTIM, "mine", "exit 3")
    trap_file = os.path.join(attack.shared(storage), "trap", "run_001", "run.json")
    attack.edit_json(trap_file, created=9e9)  # the newest of all
    done = attack.call(storage, VICTIM, "unisono", "run", "--resume", "--", "true")
    assert done.returncode == 0, done.stderr
    assert os.listdir(told) == [str(ATTACKER)]


def test_own_runs_in_a_shared_storage_resume(storage):
    attack.need_root()
    for who in (0, VICTIM):
        attack.failed_run(storage, who, "own-%d" % who, "exit 3")
        done = attack.call(storage, who, "unisono", "run", "--resume", "own-%d" % who, "--", "true")
        assert done.returncode == 0, done.stderr
        done = attack.call(storage, who, "unisono", "rm", "--yes", "own-%d" % who)
        assert done.returncode == 0, done.stderr


def test_requeue_resumes_only_ones_own(storage):
    """A run of another user that says it belongs to the victim's Slurm job, and is the newest of all."""
    attack.need_root()
    directory, told = trap(storage)
    attack.edit_json(os.path.join(directory, "run.json"), created=9e9, options={"slurm_job": "77"})
    done = attack.call(storage, VICTIM, "unisono", "run", "--requeue", "--name", "mine", "-n", "1", "--", "true",
                       env={"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "1"})
    assert done.returncode == 0, done.stderr
    assert os.listdir(told) == [str(ATTACKER)]
    assert os.path.isdir(os.path.join(attack.shared(storage), "mine", "run_001")), done.stderr


def test_scale_writes_only_into_ones_own(storage):
    attack.need_root()
    process = sleeper(ATTACKER)
    try:
        directory = planted(storage, process.pid, attack.start_ticks(process.pid))
        attack.edit_json(os.path.join(directory, "run.json"), options={"min_workers": 1, "max_workers": 4})
        for mode in (0o755, 0o777):
            os.chmod(directory, mode)
            for victim in (0, VICTIM):
                done = attack.call(storage, victim, "unisono", "scale", "--no-wait", "planted", "2")
                attack.assert_refused(done, "belongs to another user")
                assert not os.path.lexists(os.path.join(directory, ".scale")), done.stderr
    finally:
        process.kill()
        process.wait()


def planted(storage, pid, ticks, owner=ATTACKER):
    """A run that says it is running, with that process as its controller."""
    directory = attack.failed_run(storage, owner, "planted", "exit 3")
    attack.edit_json(os.path.join(directory, "run.json"), status="running", controller={"pid": pid, "start_ticks": ticks})
    return directory


def sleeper(uid):
    return subprocess.Popen(["sleep", "60"], **({"user": uid, "group": uid, "extra_groups": []} if uid else {}))


def assert_not_signalled(process, done):
    attack.assert_refused(done)
    assert process.poll() is None, "the process was signalled: %s" % done.stdout


def test_stop_does_not_signal_what_another_user_names(storage):
    attack.need_root()
    for victim in (0, VICTIM):
        process = sleeper(victim)
        try:
            directory = None
            for ticks in (0, attack.start_ticks(process.pid)):
                if directory is None:
                    directory = planted(storage, process.pid, ticks)
                attack.edit_json(os.path.join(directory, "run.json"), controller={"pid": process.pid, "start_ticks": ticks})
                for how in ([], ["--now"]):
                    done = attack.call(storage, victim, "unisono", "stop", "--timeout", "1s", *how, "planted")
                    assert_not_signalled(process, done)
                    assert "belongs to another user" in done.stderr, done.stderr
        finally:
            process.kill()
            process.wait()
        subprocess.run(["rm", "-rf", os.path.join(attack.shared(storage), "planted")], check=True)


def test_stop_signals_only_the_controller(storage):
    """A run.json of one's own with a stale pid: the process is ours, but it is not the controller."""
    attack.need_root()
    process, foreign = sleeper(VICTIM), sleeper(ATTACKER)
    try:
        directory = planted(storage, process.pid, attack.start_ticks(process.pid), VICTIM)
        assert_not_signalled(process, attack.call(storage, VICTIM, "unisono", "stop", "--timeout", "1s", "planted"))
        attack.edit_json(os.path.join(directory, "run.json"), controller={"pid": process.pid})
        assert_not_signalled(process, attack.call(storage, VICTIM, "unisono", "stop", "--timeout", "1s", "planted"))
        attack.edit_json(os.path.join(directory, "run.json"), controller={"pid": foreign.pid, "start_ticks": attack.start_ticks(foreign.pid)})
        done = attack.call(storage, VICTIM, "unisono", "stop", "--timeout", "1s", "planted")
        assert_not_signalled(foreign, done)
        assert "belongs to another user" in done.stderr, done.stderr
        for bad in (-1, 0, 1 << 31, 1 << 40, "1"):
            attack.edit_json(os.path.join(directory, "run.json"), controller={"pid": bad, "start_ticks": 1})
            attack.assert_refused(attack.call(storage, VICTIM, "unisono", "stop", "--timeout", "1s", "planted"))
    finally:
        for each in (process, foreign):
            each.kill()
            each.wait()


def test_stop_knows_a_later_process_with_the_same_pid(storage):
    """One that has the journal open, but has not started when the controller did."""
    attack.need_root()
    directory = planted(storage, 1, 1, VICTIM)
    process = subprocess.Popen(["sh", "-c", 'exec sleep 60 <"$1"', "sh", os.path.join(directory, "journal.jsonl")], user=VICTIM, group=VICTIM, extra_groups=[])
    try:
        support.wait_for(lambda: os.readlink("/proc/%d/exe" % process.pid).endswith("sleep"))
        ticks = attack.start_ticks(process.pid)
        attack.edit_json(os.path.join(directory, "run.json"), controller={"pid": process.pid, "start_ticks": ticks - 1})
        assert_not_signalled(process, attack.call(storage, VICTIM, "unisono", "stop", "--timeout", "1s", "planted"))
        attack.edit_json(os.path.join(directory, "run.json"), controller={"pid": process.pid, "start_ticks": ticks})
        attack.call(storage, VICTIM, "unisono", "stop", "--timeout", "1s", "planted")
        assert process.wait(20) == -signal.SIGTERM, "the attack is one"
    finally:
        process.kill()
        process.wait()


def test_stop_ends_a_run_of_ones_own(storage):
    attack.need_root()
    folder = attack.programs(storage)
    process = subprocess.Popen([os.path.join(folder, "unisono"), "run", "-n", "1", "--name", "live", "--storage", attack.shared(storage), "--", "sleep", "60"],
                               user=VICTIM, group=VICTIM, extra_groups=[], cwd=storage, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env=dict(os.environ, HOME=attack.home(storage, VICTIM)))
    try:
        run_json = os.path.join(attack.shared(storage), "live", "run_001", "run.json")
        support.wait_for(lambda: os.path.exists(run_json) and json.load(open(run_json, encoding="utf-8"))["status"] == "running")
        for stranger in (0, ATTACKER):
            done = attack.call(storage, stranger, "unisono", "stop", "--timeout", "1s", os.path.dirname(run_json))
            attack.assert_refused(done)
        assert process.poll() is None
        done = attack.call(storage, VICTIM, "unisono", "stop", "live")
        assert done.returncode == 0, done.stderr
        assert process.wait(20) == 75
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_what_others_can_write_is_refused(storage):
    """Each part of a run of one's own, made writable for others in turn."""
    attack.need_root()
    directory = attack.failed_run(storage, VICTIM, "open", "exit 3")
    parts = ("run.json", "journal.jsonl", "results.jsonl", "progress.csv", "tune.jsonl", "logs", "checkpoints", ".recovery", ".steps", ".staging")
    for name in parts[5:]:
        os.makedirs(os.path.join(directory, name), mode=0o700, exist_ok=True)
    for name in parts[:5]:
        with open(os.path.join(directory, name), "a", encoding="utf-8"):
            pass
    attack.give_away(directory, VICTIM)
    for path in (attack.shared(storage), os.path.dirname(directory), directory, *(os.path.join(directory, name) for name in parts)):
        before = os.stat(path).st_mode & 0o7777
        wide = 0o777 if os.path.isdir(path) else 0o666
        for mode in (wide, wide & ~0o002) if path != attack.shared(storage) else (wide,):
            os.chmod(path, mode)
            for words in (["run", "--resume", "open", "--", "true"], ["rm", "--yes", "open"]):
                done = attack.call(storage, VICTIM, "unisono", *words)
                attack.assert_refused(done, "refusing", "chmod")
        os.chmod(path, before)
    os.unlink(os.path.join(directory, "tune.jsonl"))
    done = attack.call(storage, VICTIM, "unisono", "run", "--resume", "open", "--", "true")
    assert done.returncode == 0, done.stderr


def test_links_are_not_followed(storage):
    """The name, the run, and each of its files as a symbolic link to a run of one's own."""
    attack.need_root()
    directory = attack.failed_run(storage, VICTIM, "real", "exit 3")
    place = attack.shared(storage)

    def link(target, path):
        os.symlink(target, path)
        os.chown(path, VICTIM, VICTIM, follow_symlinks=False)

    link(os.path.dirname(directory), os.path.join(place, "name"))
    os.mkdir(os.path.join(place, "other"), 0o755)
    os.chown(os.path.join(place, "other"), VICTIM, VICTIM)
    link(directory, os.path.join(place, "other", "run_001"))
    for name in ("name", "other"):
        attack.assert_refused(attack.call(storage, VICTIM, "unisono", "run", "--resume", name, "--", "true"), "symbolic link")
        attack.assert_refused(attack.call(storage, VICTIM, "unisono", "rm", "--yes", name), "symbolic link")
    for part in ("run.json", "journal.jsonl", "results.jsonl", "logs", "checkpoints"):
        path, aside = os.path.join(directory, part), os.path.join(directory, part + ".aside")
        if not os.path.exists(path):
            continue
        os.rename(path, aside)
        link(aside, path)
        attack.assert_refused(attack.call(storage, VICTIM, "unisono", "run", "--resume", "real", "--", "true"), "symbolic link")
        os.unlink(path)
        os.rename(aside, path)
    assert attack.call(storage, VICTIM, "unisono", "run", "--resume", "real", "--", "true").returncode == 0


def test_a_new_run_does_not_go_into_another_users_directory(storage):
    attack.need_root()
    place = attack.shared(storage)
    os.mkdir(os.path.join(place, "digits"))
    os.chmod(os.path.join(place, "digits"), 0o777)
    os.chown(os.path.join(place, "digits"), ATTACKER, ATTACKER)
    os.mkdir(os.path.join(storage, "elsewhere"), 0o777)
    os.chmod(os.path.join(storage, "elsewhere"), 0o777)
    os.symlink(os.path.join(storage, "elsewhere"), os.path.join(place, "linked"))
    os.chown(os.path.join(place, "linked"), ATTACKER, ATTACKER, follow_symlinks=False)
    for name in ("digits", "linked"):
        for victim in (0, VICTIM):
            done = attack.call(storage, victim, "unisono", "run", "-n", "1", "--name", name, "--", "true")
            attack.assert_refused(done, "refusing")
    assert os.listdir(os.path.join(place, "digits")) == [] and os.listdir(os.path.join(storage, "elsewhere")) == []


def test_a_storage_that_others_can_change_is_refused(storage):
    """Mode 0777 without the sticky bit: any user could move the new run away and put a link in its place."""
    attack.need_root()
    attack.programs(storage)
    place = os.path.join(storage, "open")
    os.mkdir(place)
    spec = os.path.join(storage, "spec.json")
    with open(spec, "w", encoding="utf-8") as file:
        json.dump({"program": ["true"], "space": {"x": 1}, "name": "tuned"}, file)
    os.chmod(spec, 0o644)
    script = os.path.join(storage, "trainer.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write("import sys\nfrom unisono import train, tune\n"
                   "def loop(config):\n    pass\n"
                   "if __name__ == '__main__':\n"
                   "    run = train.RunConfig(name='py', storage_path=sys.argv[1])\n"
                   "    if sys.argv[2] == 'tune':\n        tune.Tuner(loop, param_space={'x': 1}, run_config=run).fit()\n"
                   "    else:\n        train.DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=1), run_config=run).fit()\n")
    ways = [["unisono", "run", "-n", "1", "--name", "new", "--", "true"], ["unisono", "tune", spec], [sys.executable, script, place, "train"],
            [sys.executable, script, place, "tune"]]
    for mode in (0o777, 0o757):
        os.chmod(place, mode)
        for victim in (0, VICTIM):
            for words in ways:
                if words[0] == sys.executable and victim:
                    continue  # the package may lie in a private home directory
                done = attack.call(storage, victim, *words, results=place, env={"PYTHONPATH": os.path.join(support.BUILD, "python")})
                if "No module named" in done.stderr:
                    continue
                attack.assert_refused(done, "refusing to use " + place, "%04o" % mode, "chmod +t")
        assert os.listdir(place) == [], os.listdir(place)
    os.chmod(place, 0o1777)
    for victim in (0, VICTIM):
        done = attack.call(storage, victim, "unisono", "run", "-n", "1", "--name", "new-%d" % victim, "--", "true", results=place)
        assert done.returncode == 0, done.stderr


def test_a_storage_below_a_directory_that_others_can_change_is_refused(storage):
    """An emptyDir volume of Kubernetes: root's, mode 0777. A private directory in it can be moved away by any user, and its path made again."""
    attack.need_root()
    attack.programs(storage)
    volume = os.path.join(storage, "volume")
    mine = os.path.join(volume, "mine")
    os.makedirs(mine, 0o700)
    os.chown(mine, VICTIM, VICTIM)
    os.chmod(volume, 0o777)
    for place in (volume, mine, os.path.join(mine, "deeper")):
        for words in (["run", "-n", "1", "--name", "new", "--", "true"], ["run", "--resume", "new"]):
            done = attack.call(storage, VICTIM, "unisono", *words, results=place)
            assert done.returncode != 0, (place, words)
            if words[1] == "-n":
                attack.assert_refused(done, "refusing to use " + place, "any user can replace what is in " + volume, "0777", "chmod +t", "home directory")
    os.chmod(volume, 0o1777)
    done = attack.call(storage, VICTIM, "unisono", "run", "-n", "1", "--name", "new", "--", "true", results=mine)
    assert done.returncode == 0, done.stderr


def test_what_a_run_writes_stays_in_its_directory(storage):
    """Even the owner of the storage, who can move anything, does not get run.json or the journal written elsewhere."""
    attack.need_root()
    attack.programs(storage)
    place, trap = os.path.join(storage, "attackers"), os.path.join(storage, "trap")
    for path in (place, trap):
        os.mkdir(path)
        os.chmod(path, 0o1777)
    os.chown(place, ATTACKER, ATTACKER)
    script = 'mv "$1" "$2" && ln -s "$3" "$1"'
    worker = "touch %s/ready; while [ ! -e %s/go ]; do sleep 0.05; done" % (trap, trap)
    environment = dict(os.environ, HOME=attack.home(storage, VICTIM), UNISONO_RESULTS=place)
    with subprocess.Popen([os.path.join(attack.programs(storage), "unisono"), "run", "-n", "1", "--name", "new", "--", "sh", "-c", worker], env=environment, cwd=storage,
                          user=VICTIM, group=VICTIM, extra_groups=[], stdin=subprocess.DEVNULL) as process:
        try:
            support.wait_for(lambda: os.path.exists(os.path.join(trap, "ready")))
            os.mkdir(os.path.join(trap, "run_001"))
            os.chmod(os.path.join(trap, "run_001"), 0o777)
            done = attack.call(storage, ATTACKER, "sh", "-c", script, "sh", os.path.join(place, "new"), os.path.join(place, "moved"), trap)
            assert done.returncode == 0, done.stderr
            with open(os.path.join(trap, "go"), "w", encoding="utf-8"):
                pass
            process.wait(60)
        finally:
            process.kill()
    assert not {"run.json", "journal.jsonl", "results.jsonl"} & set(os.listdir(os.path.join(trap, "run_001"))), os.listdir(os.path.join(trap, "run_001"))
    with open(os.path.join(place, "moved", "run_001", "run.json"), encoding="utf-8") as file:
        assert json.load(file)["status"] in ("succeeded", "failed")


def test_reading_follows_no_links(storage):
    """Links in another user's run to files of one's own: their contents are not shown as the run's."""
    attack.need_root()
    secret = os.path.join(attack.home(storage, VICTIM), "secret")
    with open(secret, "w", encoding="utf-8") as file:
        file.write('{"format":"unisono run","version":1,"name":"SECRET"}\nSECRET\n')
    os.chmod(secret, 0o600)
    os.chown(secret, VICTIM, VICTIM)
    logs = os.path.join(attack.home(storage, VICTIM), "logs")
    os.mkdir(logs)
    with open(os.path.join(logs, "rank_0.log"), "w", encoding="utf-8") as file:
        file.write("SECRET\n")
    attack.give_away(logs, VICTIM)
    told = os.path.join(storage, "told")
    os.mkdir(told)
    os.chmod(told, 0o1777)
    directory = attack.failed_run(storage, ATTACKER, "trap", "echo visible; unisono report loss=1; exit 3")
    experiment(storage, ATTACKER, told)
    tuned = os.path.join(attack.shared(storage), "tuned", "tune_001")

    def linked(path, target):
        os.rename(path, path + ".aside")
        os.symlink(target, path)
        os.chown(path, ATTACKER, ATTACKER, follow_symlinks=False)

    def restore(path):
        os.unlink(path)
        os.rename(path + ".aside", path)

    reading = [["show", "trap"], ["show", "--json", "trap"], ["show", "--all", "trap"], ["ls"], ["ls", "--json"], ["why", "trap"], ["why", "--json", "trap"], ["logs", "trap"],
               ["logs", "--lines", "5", "trap"], ["plot", "trap"], ["plot", "--json", "trap"], ["data", "head", directory], ["data", "schema", directory]]
    tuning = [["tune", "show", "tuned"], ["tune", "best", "tuned"], ["tune", "plot", "tuned", "-o", "-"], ["tune", "show", "--csv", "tuned"]]
    cases = [(os.path.join(directory, name), secret, reading) for name in ("run.json", "journal.jsonl", "results.jsonl", "logs/rank_0.log")]
    cases += [(os.path.join(directory, "logs"), logs, reading), (os.path.join(tuned, "tune.jsonl"), secret, tuning)]
    for path, target, commands in cases:
        linked(path, target)
        for words in commands:
            done = attack.call(storage, VICTIM, "unisono", *words)
            assert "SECRET" not in done.stdout + done.stderr, (path, words, done.stdout, done.stderr)
            assert 0 <= done.returncode < 128, (words, done.returncode)
        restore(path)
    # The refusal says what and why, and files that are none work.
    linked(os.path.join(directory, "logs"), logs)
    done = attack.call(storage, VICTIM, "unisono", "logs", "trap")
    assert "symbolic link" in done.stderr and "logs" in done.stderr, done.stderr
    restore(os.path.join(directory, "logs"))
    done = attack.call(storage, VICTIM, "unisono", "logs", "trap")
    assert "visible" in done.stdout, done.stdout + done.stderr


def test_reading_follows_no_links_to_runs(storage):
    """NAME and run_NNN that are links of another user, to a run of one's own or of anybody's, are not shown as runs of that name."""
    attack.need_root()
    attack.failed_run(storage, VICTIM, "mine", "echo SECRET; unisono report loss=1; exit 3")
    place = attack.shared(storage)
    os.mkdir(os.path.join(place, "trap"))
    links = [(os.path.join(place, "link"), os.path.join(place, "mine"), "link"), (os.path.join(place, "trap", "run_001"), os.path.join(place, "mine", "run_001"), "trap"),
             (os.path.join(place, "flat"), os.path.join(place, "mine", "run_001"), "flat")]
    for path, target, _ in links:
        os.symlink(target, path)
        os.chown(path, ATTACKER, ATTACKER, follow_symlinks=False)
    os.chown(os.path.join(place, "trap"), ATTACKER, ATTACKER)
    for path, _, name in links:
        for words in (["show", name], ["why", name], ["logs", name], ["plot", name], ["show", path], ["logs", path]):
            done = attack.call(storage, VICTIM, "unisono", *words)
            assert done.returncode not in (0, 3) and "SECRET" not in done.stdout, (words, done.stdout)
            # Linux itself refuses with fs.protected_symlinks; then there is no such run.
            assert "symbolic link of another user" in done.stderr or "there is no run" in done.stderr or "is not a run" in done.stderr or "denied" in done.stderr, (words, done.stderr)
    done = attack.call(storage, VICTIM, "unisono", "ls")
    assert done.returncode == 0 and done.stdout.count("mine") == 1, done.stdout
    done = attack.call(storage, VICTIM, "unisono", "logs", "mine")
    assert "SECRET" in done.stdout, done.stderr


def test_rm_refuses_the_run_of_another_user(storage):
    attack.need_root()
    directory = attack.failed_run(storage, ATTACKER, "trap", "exit 3")
    for victim in (0, VICTIM):
        attack.assert_refused(attack.call(storage, victim, "unisono", "rm", "--yes", "trap"), "belongs to another user")
    assert os.path.exists(os.path.join(directory, "run.json"))


def experiment(storage, uid, told):
    """An experiment of that user's, with one trial."""
    spec = os.path.join(storage, "spec-%d.json" % uid)
    with open(spec, "w", encoding="utf-8") as file:
        json.dump({"program": ["sh", "-c", "id -u > %s/$(id -u); exit 3" % told], "space": {"x": 1}, "name": "tuned"}, file)
    os.chmod(spec, 0o644)
    done = attack.call(storage, uid, "unisono", "tune", spec)
    attack.readable(os.path.join(attack.shared(storage), "tuned"))
    return done


def test_tune_resume_refuses_the_experiment_of_another_user(storage):
    attack.need_root()
    told = os.path.join(storage, "told")
    os.mkdir(told)
    os.chmod(told, 0o1777)
    experiment(storage, ATTACKER, told)
    assert os.listdir(told) == [str(ATTACKER)]
    for victim in (0, VICTIM):
        done = attack.call(storage, victim, "unisono", "tune", "resume", "--retry", "tuned")
        attack.assert_refused(done, "belongs to another user")
        attack.assert_refused(experiment(storage, victim, told), "refusing")  # of the same name
    assert os.listdir(told) == [str(ATTACKER)]


def test_names_that_a_shell_would_expand(storage):
    """`unisono rm $(unisono ls -q)` and completion by TAB: a name is another user's word."""
    attack.need_root()
    told = os.path.join(storage, "told")
    os.mkdir(told)
    os.chmod(told, 0o1777)
    attack.failed_run(storage, VICTIM, "keepme", "exit 3")
    attack.failed_run(storage, ATTACKER, "plain", "exit 3")
    for name in ("y keepme", "$(id>%s)" % "x", "`id`", "a*"):
        directory = os.path.join(attack.shared(storage), name)
        subprocess.run(["cp", "-a", os.path.join(attack.shared(storage), "plain"), directory], check=True)
    done = attack.call(storage, VICTIM, "unisono", "ls", "--quiet")
    assert sorted(done.stdout.split("\n")) == ["", "keepme/run_001", "plain/run_001"], done.stdout
    assert done.stderr.count("skipped: ") == 4, done.stderr
    script = "source <(unisono completion bash); COMP_WORDS=(unisono show ''); COMP_CWORD=2; COMP_LINE='unisono show '; COMP_POINT=13; _unisono; echo ${COMPREPLY[@]}"
    done = attack.call(storage, VICTIM, "bash", "-c", script)
    assert "keepme/run_001" in done.stdout and "id" not in done.stdout, (done.stdout, done.stderr)
    assert not os.path.exists(os.path.join(storage, "x")), "completion ran a program that a name holds"


def test_a_page_does_not_go_into_the_experiment_of_another_user(storage):
    attack.need_root()
    told = os.path.join(storage, "told")
    os.mkdir(told)
    os.chmod(told, 0o1777)
    experiment(storage, ATTACKER, told)
    mine = os.path.join(attack.home(storage, VICTIM), "mine")
    with open(mine, "w", encoding="utf-8") as file:
        file.write("private")
    os.chown(mine, VICTIM, VICTIM)
    os.chmod(mine, 0o600)
    directory = os.path.join(attack.shared(storage), "tuned", "tune_001")
    assert os.path.isdir(directory), os.listdir(os.path.join(attack.shared(storage), "tuned"))
    subprocess.run(["chmod", "-R", "777", os.path.dirname(directory)], check=True)
    os.symlink(mine, os.path.join(directory, "tune.html"))
    attack.assert_refused(attack.call(storage, VICTIM, "unisono", "tune", "plot", "tuned"), "-o FILE")
    with open(mine, encoding="utf-8") as file:
        assert file.read() == "private"
    assert os.stat(mine).st_mode & 0o777 == 0o600
    os.remove(os.path.join(directory, "tune.jsonl"))
    os.mkfifo(os.path.join(directory, "tune.jsonl"), 0o666)
    for word in ("show", "best", "plot"):  # no hang
        done = attack.call(storage, VICTIM, "unisono", "tune", word, "tuned", timeout=20)
        assert done.returncode != 0, done.stdout


def test_an_empty_name_is_no_run(storage):
    attack.need_root()
    attack.failed_run(storage, VICTIM, "keepme", "exit 3")
    for command in (["rm", "--yes", ""], ["stop", ""]):
        attack.assert_refused(attack.call(storage, VICTIM, "unisono", *command), "is empty")
    assert os.path.isdir(os.path.join(attack.shared(storage), "keepme", "run_001"))


def python(storage, uid, script, *words):
    """A Python program on the build's module, as that user."""
    path = os.path.join(storage, "script.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(script)
    return attack.call(storage, uid, sys.executable, path, *words, env={"PYTHONPATH": os.path.join(support.BUILD, "python")})


PYTHON_RUN = """
import sys
from unisono import train, tune

def loop(config):
    raise ValueError("no")

def trial(config):
    raise ValueError("no")

if __name__ == "__main__":
    try:
        train.DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=1), run_config=train.RunConfig(name="py", storage_path=sys.argv[1])).fit()
    except Exception:
        pass
    tune.Tuner(trial, run_config=train.RunConfig(name="pytune", storage_path=sys.argv[1])).fit()
"""

PYTHON_RESTORE = """
import sys
from unisono import train, tune

def loop(config):
    open(sys.argv[2], "w").close()

def refused(call):
    try:
        call()
    except Exception as error:
        assert "belongs to another user" in str(error), repr(error)
    else:
        raise AssertionError("not refused")

if __name__ == "__main__":
    place = sys.argv[1]
    assert not train.DataParallelTrainer.can_restore(place + "/py")
    assert not tune.Tuner.can_restore(place + "/pytune")
    refused(lambda: train.DataParallelTrainer.restore(place + "/py", loop))
    refused(lambda: tune.Tuner.restore(place + "/pytune", loop))
    refused(lambda: tune.run(loop, name="pytune", storage_path=place, resume=True))
    refused(lambda: train.DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=1), run_config=train.RunConfig(name="py", storage_path=place)).fit())
"""


def test_python_restores_only_ones_own(storage):
    attack.need_root()
    place = attack.shared(storage)
    done = python(storage, 0, PYTHON_RUN, place)
    if "No module named" in done.stderr:
        raise support.Skip(done.stderr.strip().splitlines()[-1])
    assert os.path.exists(os.path.join(place, "pytune")), done.stdout + done.stderr
    done = python(storage, 0, "import sys\nfrom unisono import train, tune\n"
                  "sys.exit(not (train.DataParallelTrainer.can_restore(sys.argv[1] + '/py') and tune.Tuner.can_restore(sys.argv[1] + '/pytune')))", place)
    assert done.returncode == 0, done.stderr
    for name in ("py", "pytune"):
        attack.readable(os.path.join(place, name))
        attack.give_away(os.path.join(place, name), ATTACKER)
    marker = os.path.join(storage, "ran")
    done = python(storage, 0, PYTHON_RESTORE, place, marker)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not os.path.exists(marker)


def test_code_around_a_copy_is_not_run(storage):
    """A copy of the command in /tmp looks for its agent and plug-ins around it, where anybody can put files."""
    attack.need_root()
    told = os.path.join(storage, "told")
    os.mkdir(told)
    os.chmod(told, 0o1777)
    public = os.path.join(storage, "public")
    os.makedirs(os.path.join(public, "mine"))
    os.chmod(public, 0o1777)
    attack.programs(storage)
    subprocess.run(["cp", os.path.join(storage, "bin", "unisono"), os.path.join(public, "mine")], check=True)
    os.chown(os.path.join(public, "mine"), VICTIM, VICTIM)
    os.chown(os.path.join(public, "mine", "unisono"), VICTIM, VICTIM)
    for folder in ("group", "src/group"):
        os.makedirs(os.path.join(public, folder), exist_ok=True)
        agent = os.path.join(public, folder, "unisono-agent")
        with open(agent, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nid -u > %s/agent-$(id -u)\n" % told)
        os.chmod(agent, 0o755)
        os.chown(agent, ATTACKER, ATTACKER)
    done = attack.call(storage, VICTIM, os.path.join(public, "mine", "unisono"), "run", "-n", "1", "--", "true")
    attack.assert_refused(done, "belongs to another user")
    assert os.listdir(told) == [], os.listdir(told)


def test_check_imports_nothing_from_the_current_directory(storage):
    attack.need_root()
    trapped = os.path.join(storage, "trapped")
    os.mkdir(trapped)
    for name in ("numpy", "unisono", "torch", "tensorflow", "keras", "horovod", "ray", "os", "importlib"):
        with open(os.path.join(trapped, name + ".py"), "w", encoding="utf-8") as file:
            file.write("open(%r, 'w').close()\n" % os.path.join(storage, "owned-" + name))
    subprocess.run([os.path.join(attack.programs(storage), "unisono"), "check"], cwd=trapped, capture_output=True, timeout=120, check=False,
                   env=dict(os.environ, HOME=storage, UNISONO_RESULTS=storage))
    assert not [name for name in os.listdir(storage) if name.startswith("owned")], os.listdir(storage)


if __name__ == "__main__":
    support.main()
