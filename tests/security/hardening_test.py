"""What the compiler and the linker were asked for is in the built files: read with readelf."""

import os
import re
import subprocess

import attack
import support


def readelf(*words):
    return subprocess.run(["readelf", "-W", *words], capture_output=True, text=True, errors="replace", timeout=60, check=True).stdout


def installed():
    """Programs and libraries that an installation has."""
    found = [support.program("unisono"), support.program("unisono-agent")]
    for folder, _, names in os.walk(os.path.join(support.BUILD, "src")):
        found += [os.path.join(folder, name) for name in names if re.search(r"\.so(\.\d+)*$", name) or name == "unisono-host"]
    for folder, _, names in os.walk(os.path.join(support.BUILD, "python")):
        found += [os.path.join(folder, name) for name in names if name.endswith(".abi3.so")]
    return sorted({os.path.realpath(path) for path in found if not os.path.isdir(path)})


def option(name):
    """A build option, from meson's record."""
    done = subprocess.run(["meson", "introspect", "--buildoptions", support.BUILD], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r'"name": "%s", "value": "?([\w]*)' % name, done.stdout)
    return found.group(1) if found else ""


def sanitized():
    if option("b_sanitize") not in ("none", ""):
        raise support.Skip("a sanitizer's build")


def test_there_is_something_to_check(storage):
    names = [os.path.basename(path) for path in installed()]
    assert len(names) >= 4 and any(name.startswith("libunisono.so") for name in names) and "unisono-host" in names, names


def test_position_independent(storage):
    for path in installed():
        assert re.search(r"Type:\s+DYN", readelf("-h", path)), path


def test_relocations_are_read_only(storage):
    """Full RELRO: bound at the start, then write-protected."""
    for path in installed():
        assert "GNU_RELRO" in readelf("-l", path), path
        assert re.search(r"\(FLAGS(_1)?\).*\b(BIND_NOW|NOW)\b", readelf("-d", path)), path


def test_stack_is_not_executable(storage):
    for path in installed():
        stack = re.search(r"GNU_STACK.*", readelf("-l", path))
        assert stack and "RWE" not in stack.group(), path
        assert not re.search(r"LOAD.*\bRWE\b", readelf("-l", path)), path


def large():
    """Those that have enough code to need every kind of protection; a plug-in of two functions may not."""
    return [path for path in installed() if os.path.getsize(path) > 100_000]


def test_stack_protector(storage):
    assert len(large()) >= 4, large()
    for path in large():
        assert "__stack_chk_fail" in readelf("--dyn-syms", path), path


def test_fortified_calls(storage):
    sanitized()
    if option("optimization") in ("0", "g", "plain"):
        raise support.Skip("not an optimizing build")
    for path in large():
        if not re.match(r"unisono$|unisono-(agent|host)$|libunisono(-engine)?\.so", os.path.basename(path)):
            continue
        checked = set(re.findall(r"UND __(\w+?)_chk@", readelf("--dyn-syms", path)))
        assert checked - {"stack"}, path


def test_control_flow_protection(storage):
    """Intel CET: functions that can be jumped to begin with ENDBR64. (The mark of a whole file needs a C library with it, which Debian 12 does not have.)"""
    if os.uname().machine != "x86_64":
        raise support.Skip("not x86-64")
    for path in installed():
        with open(path, "rb") as file:
            count = file.read().count(b"\xf3\x0f\x1e\xfa")
        assert count >= (20 if path in large() else 1), (path, count)


if __name__ == "__main__":
    support.main()
