"""The template: an interpreter that has imported the framework and forks workers, so that only the first fit of a script pays for the import.

The driver's half is use(): it looks which frameworks a train function needs, starts one template for them (a process of the same interpreter, with
the environment of the workers), waits until it is ready, and hands its socket to the trainer. The library asks the template for an agent, the agent forks
the workers (train/shared.h). The template ends with the driver.

The template's half is main(): it imports, looks whether a fork is safe here, and serves. Safe means: no thread runs but those whose
library says that it survives a fork, and neither TensorFlow nor CUDA is at work. Otherwise it says why and ends; workers are new
processes then, as with UNISONO_TEMPLATE=0.
"""

import os
import sys

if __name__ == "__main__":
    if os.fork():  # the driver waits for this process only: the template never shows up in its os.wait()
        os._exit(0)
    os.setsid()
    _package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if _package not in sys.path:
        sys.path.insert(0, _package)
    from unisono import _template

    _template.main(int(sys.argv[1]))

import json
import logging
import threading

logger = logging.getLogger("unisono")

HEAVY = ("tensorflow", "tf_keras", "keras", "torch")  # a template is for these
LIGHT = ("numpy", "pandas", "scipy", "sklearn", "torchvision", "torchmetrics")  # and takes these along
OWN_OF_RANK = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "CUDA_VISIBLE_DEVICES",
               "UNISONO_SESSION", "UNISONO_REPORT_FD", "UNISONO_RANK", "UNISONO_WORLD_SIZE", "UNISONO_LOCAL_RANK", "UNISONO_LOCAL_WORLD_SIZE",
               "UNISONO_NODE_RANK", "UNISONO_ROLE", "UNISONO_ROLE_INDEX", "UNISONO_ATTEMPT", "UNISONO_RUN_DIR", "UNISONO_STAGING", "UNISONO_CHECKPOINT",
               "UNISONO_TEMPLATE"}
KEPT = 2  # templates of one driver: a second one for another environment
READY_SECONDS = 300


# ---- what a function needs ----


def _note_name(name, out):
    parts = name.split(".")
    if parts[0] in ("unisono", "ray", "horovod"):  # unisono.horovod.torch, ray.train.tensorflow.keras
        out.update(known for part, known in (("torch", "torch"), ("tensorflow", "tensorflow"), ("keras", "tensorflow")) if part in parts[1:])
    elif parts[0] in HEAVY or parts[0] in LIGHT:
        out.add(parts[0])


def _codes(code):
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from _codes(constant)


def _look_at_function(function, out, seen, depth):
    import dis

    for code in _codes(function.__code__):
        module = ""
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IMPORT_NAME":
                module = instruction.argval
                _note_name(module, out)
            elif instruction.opname == "IMPORT_FROM":  # from unisono.horovod import torch
                _note_name(module + "." + instruction.argval, out)
        for name in code.co_names:
            if name in function.__globals__:
                _look(function.__globals__[name], out, seen, depth + 1)
    for cell in function.__closure__ or ():
        try:
            _look(cell.cell_contents, out, seen, depth + 1)
        except ValueError:  # an empty cell
            pass


def _look(thing, out, seen, depth):
    import functools
    import types

    if id(thing) in seen or depth > 8:
        return
    seen.add(id(thing))
    if isinstance(thing, types.ModuleType):
        _note_name(thing.__name__, out)
        return
    if isinstance(thing, functools.partial):
        thing = thing.func
    kind = thing if isinstance(thing, type) else type(thing)
    _note_name(getattr(thing, "__module__", None) or kind.__module__, out)
    root = (getattr(thing, "__module__", None) or "").partition(".")[0]
    if (root in sys.stdlib_module_names and root != "__main__") or root in HEAVY or root in LIGHT or root == "unisono":
        return
    if isinstance(thing, types.MethodType):
        _look(thing.__func__, out, seen, depth)
        _look(type(thing.__self__), out, seen, depth)
    elif isinstance(thing, types.FunctionType):
        _look_at_function(thing, out, seen, depth)
    elif isinstance(thing, type):
        for base in thing.__mro__:
            _note_name(base.__module__, out)
        for value in list(vars(thing).values()):
            if isinstance(value, types.FunctionType):
                _look(value, out, seen, depth + 1)
    elif isinstance(getattr(kind, "__call__", None), types.FunctionType):  # noqa: B004
        _look(kind, out, seen, depth + 1)


def frameworks_of(function):
    """The modules of HEAVY and LIGHT that a function imports or holds, itself or through what it calls."""
    out = set()
    try:
        _look(function, out, set(), 0)
    except Exception:  # an object with tricks: then without a template
        return set()
    return out


# ---- the driver's half ----


class Template:
    """The driver's end of one template."""

    def __init__(self, modules, environment):
        import socket
        import subprocess

        self.modules, self.environment, self.pid = modules, environment, os.getpid()
        self.problem, self.known, self.process, self.lock = None, False, None, threading.Lock()
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            subprocess.run([sys.executable, "-P", os.path.abspath(__file__), str(theirs.fileno())], pass_fds=(theirs.fileno(),), env=environment,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        asked = {"path": [os.path.abspath(entry) for entry in sys.path], "modules": sorted(modules)}
        try:
            self.socket.send(json.dumps(asked).encode())
        except OSError as error:
            self.problem, self.known = "it did not start (%s)" % error, True

    def wait(self):
        """Until it is ready; True when it is. Says once why it is not."""
        with self.lock:
            if not self.known:
                self.socket.settimeout(READY_SECONDS)
                try:
                    answer = self.socket.recv(1 << 16)
                except OSError as error:
                    answer = json.dumps({"problem": str(error)}).encode()
                self.socket.settimeout(None)
                answer = json.loads(answer) if answer else {"problem": "it ended while it imported %s" % ", ".join(sorted(self.modules))}
                self.problem, self.process, self.known = answer["problem"], answer.get("pid"), True
                if self.problem:
                    logger.warning("workers are new processes, not forked from a template: %s", self.problem)
                    self.socket.close()
        return self.problem is None

    def is_alive(self):
        import select

        return self.problem is None and (not self.known or not select.select([self.socket], [], [], 0)[0])


_templates: list[Template] = []  # newest last
_lock = threading.Lock()


def _environment_for(trainer):
    """What all ranks of a trainer find in their environment."""
    environment = dict(os.environ)
    environment.update(trainer.plan()["workers"][0]["environment"])
    return {name: value for name, value in environment.items() if name not in OWN_OF_RANK and not name.startswith("HOROVOD_")}


def _find(modules, environment):
    with _lock:
        for each in list(_templates):
            if each.pid != os.getpid() or not (each.problem or each.is_alive()):
                _templates.remove(each)
                each.socket.close()
        for each in _templates:
            if each.environment == environment and each.modules >= modules:
                return each
        made = Template(modules.union(*(each.modules for each in _templates if each.environment == environment)), environment)
        _templates[:] = [each for each in _templates if each.environment != environment][-(KEPT - 1):] + [made]
        return made


def use(trainer, function, backend):
    """Lets the trainer's workers come from a template when that helps the function; returns whether they do."""
    modules = frameworks_of(function)
    if backend == "torch":  # its set-up imports it in any case
        modules.add("torch")
    if os.environ.get("UNISONO_TEMPLATE", "1") == "0" or not modules.intersection(HEAVY):
        trainer.use_template(-1)
        return False
    template = _find(modules, _environment_for(trainer))
    ready = template.wait()
    trainer.use_template(template.socket.fileno() if ready else -1)
    return ready


def shutdown():
    """Ends the templates of this process that no trainer uses any more."""
    with _lock:
        for each in _templates:
            each.socket.close()
        _templates.clear()


# ---- the template's half ----


def _threads():
    """Names of the threads besides the only one that may be: fork is tried once, since some libraries (OpenBLAS) end theirs for it."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    names = []
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            with open("/proc/self/task/%s/comm" % task, encoding="utf-8", errors="replace") as file:
                names.append(file.read().strip())
    return names


def _problem():
    """Why workers must not be forked from this process, or None."""
    others = [name for name in _threads() if name != "jemalloc_bg_thd"]  # jemalloc has handlers for fork, and starts it anew
    if others:
        return "the import left threads running (%s)" % ", ".join(sorted(others))
    context = sys.modules.get("tensorflow.python.eager.context")
    context = context.context_safe() if context else None
    if context is not None and context._initialized:
        return "the import started TensorFlow's runtime"
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        return "the import started CUDA"
    return None


def _become_worker(environment):
    """What is different in a forked process from a new one."""
    import signal

    os.environ.clear()
    os.environ.update(pair.partition("=")[::2] for pair in environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # or all ranks would draw the same; Python's own random is seeded anew by its fork handler
    sys.argv[:] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "_worker.py")]


def main(descriptor):
    import fcntl
    import gc
    import importlib
    import socket

    channel = socket.socket(fileno=descriptor)
    asked = json.loads(channel.recv(1 << 20) or b"null")
    if asked is None:
        os._exit(0)
    # The driver's death ends us, even in the middle of an import: SIGIO's default is to end the process.
    flags = fcntl.fcntl(channel, fcntl.F_GETFL)
    fcntl.fcntl(channel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(channel, fcntl.F_SETFL, flags | os.O_ASYNC)
    sys.path[:0] = [entry for entry in asked["path"] if entry not in sys.path]
    try:
        from unisono import _unisono, _worker, train  # noqa: F401

        for module in asked["modules"]:
            importlib.import_module(module)
        problem = _problem()
    except Exception as error:  # the worker's own import will say it where the user sees it
        problem = "%s: %s" % (type(error).__name__, error)
    fcntl.fcntl(channel, fcntl.F_SETFL, flags)
    try:
        channel.send(json.dumps({"problem": problem, "pid": os.getpid()}).encode())
    except OSError:
        os._exit(0)
    if problem:
        os._exit(0)
    sys.stdout.flush()
    sys.stderr.flush()
    gc.collect()
    gc.freeze()  # the collector would touch, and so copy, every shared page
    environment = _unisono.template_serve(channel.detach())
    if environment is None:
        os._exit(0)
    _become_worker(environment)
    _worker.main()
