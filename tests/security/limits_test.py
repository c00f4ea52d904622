"""Machines with little to give: few file descriptors, no /proc, names that look like options."""

import json
import os
import resource
import shutil
import subprocess
import sys

import attack
import support


def unisono(storage, *words, limit=None, **options):
    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return subprocess.run([support.program("unisono"), *words], env=support.environment(storage), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", timeout=60, check=False, preexec_fn=lower if limit else None, **options)


def test_few_descriptors(storage):
    """Every limit below 246 is a sentence with the remedy, none an abort; enough of them are enough."""
    for limit in [*range(6, 35), 40, 48, 64, 128, 230, 245, 246, 256, 1024]:
        done = unisono(storage, "run", "-n", "1", "--max-failures", "0", "--", "true", limit=limit)
        assert 0 <= done.returncode < 128, "ulimit -n %d: it crashed (%d): %s" % (limit, done.returncode, done.stderr)
        if 10 <= limit < 246:
            assert done.returncode == 125 and "ulimit -n" in done.stderr, (limit, done.returncode, done.stderr)
        if limit >= 246:
            assert done.returncode == 0, (limit, done.stderr)
    for words in (["ls"], ["show"], ["why"], ["logs"]):
        for limit in (6, 8, 10, 12):
            done = unisono(storage, *words, limit=limit)
            assert 0 <= done.returncode < 128, (words, limit, done.returncode, done.stderr)


def test_few_descriptors_in_python(storage):
    script = ("import resource, sys\nfrom unisono import train\n"
              "if __name__ == '__main__':\n"
              "    resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))\n"
              "    try:\n        train.DataParallelTrainer(print, scaling_config=train.ScalingConfig(num_workers=1), run_config=train.RunConfig(storage_path=sys.argv[1])).fit()\n"
              "    except Exception as error:\n        print(type(error).__name__, error)\n")
    path = os.path.join(storage, "script.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(script)
    done = subprocess.run([sys.executable, path, storage], env=support.environment(storage, PYTHONPATH=os.path.join(support.BUILD, "python")), capture_output=True, text=True,
                          timeout=60, check=False)
    if "No module named" in done.stderr:
        raise support.Skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode >= 0, "it crashed: %s" % done.stderr
    assert "ulimit -n" in done.stdout or "Too many open files" in done.stdout + done.stderr, done.stdout + done.stderr


def without_proc(storage, *words):
    return subprocess.run(["unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$0" "$@"', support.program("unisono"), *words], env=support.environment(storage),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)


def test_no_proc(storage):
    if os.geteuid() != 0 or not shutil.which("unshare"):
        raise support.Skip("needs root and unshare, to take /proc away")
    done = without_proc(storage, "run", "-n", "1", "--", "true")
    if "unshare" in done.stderr and "Operation not permitted" in done.stderr:
        raise support.Skip("namespaces are not permitted here")
    assert done.returncode not in (0,) and done.returncode < 128 and "/proc is not mounted" in done.stderr, (done.returncode, done.stderr)
    assert unisono(storage, "run", "-n", "1", "--name", "failed", "--max-failures", "0", "--", "false").returncode == 1
    for words in (["run", "--resume", "failed", "--", "true"], ["rm", "--yes", "failed"], ["stop", "failed"]):
        done = without_proc(storage, *words)
        assert done.returncode > 0 and done.returncode < 128 and "/proc is not mounted" in done.stderr, (words, done.returncode, done.stderr)
    for words in (["ls"], ["show", "failed"], ["why", "failed"]):
        done = without_proc(storage, *words)
        assert 0 <= done.returncode < 128, (words, done.returncode, done.stderr)


def test_names(storage):
    """Of runs, experiments and hosts."""
    for name in ("-rf", "--yes", "-", "..", "a/b", "", "a\nb", "a\033b", "a\u202eb", b"a\xff"):
        done = unisono(storage, "run", "--name=" + name if isinstance(name, str) else b"--name=" + name, "-n", "1", "--", "true")
        assert done.returncode == 64, (name, done.returncode, done.stderr)
        if isinstance(name, str) and name.startswith("-"):
            assert "begins with a dash" in done.stderr, done.stderr
        if isinstance(name, str):
            spec = os.path.join(storage, "spec.json")
            with open(spec, "w", encoding="utf-8") as file:
                json.dump({"program": ["true"], "space": {"x": 1}, "name": name}, file)
            done = unisono(storage, "tune", spec)
            assert done.returncode == 64, (name, done.returncode, done.stdout, done.stderr)
    assert [name for name in os.listdir(storage) if name != "spec.json"] == []
    for hosts in ("-oProxyCommand=x:2", "a:1,-x:1", "a b:1", "a;b:1", "$(id):1", "a\nb:1"):
        done = unisono(storage, "run", "--launcher", "mpi", "--hosts=" + hosts, "--", "true")
        assert done.returncode == 64, (hosts, done.returncode, done.stderr)
    assert unisono(storage, "run", "--name", "a-b", "-n", "1", "--", "true").returncode == 0


if __name__ == "__main__":
    support.main()
