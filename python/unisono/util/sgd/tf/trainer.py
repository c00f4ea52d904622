"""TFTrainer, the driver's half; replica.py is the workers'."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from multiprocessing.connection import Client, Listener
from typing import Any

from unisono import _codec, _driver, _key
from unisono.util.sgd.tf import replica

logger = logging.getLogger(__name__)

class TFTrainer:
    """model_creator(config) makes a compiled model, data_creator(config) a pair of datasets. config may have fit_config and evaluate_config."""

    def __init__(self, model_creator: Any, data_creator: Any, config: dict[str, Any] | None = None, num_replicas: int = 1,
                 num_cpus_per_worker: int = 1, use_gpu: bool = False, verbose: bool = False):
        self.model_creator, self.data_creator = model_creator, data_creator
        self.config = {} if config is None else config
        self.num_replicas, self.num_cpus_per_worker = num_replicas, num_cpus_per_worker
        self.use_gpu, self.verbose = use_gpu, verbose
        self.workers = list(range(num_replicas))
        self._connections, self._failure, self._done = {}, None, threading.Event()
        self._start()

    def _start(self):
        # One replica is a plain model without TF_CONFIG; more are a cluster.
        backend = "tensorflow" if self.num_replicas > 1 else "none"
        _driver.check_backend("tensorflow")
        self._group = _driver.Group(backend, mode="v1", quiet=not self.verbose, num_workers=self.num_replicas, use_gpu=self.use_gpu,
                                    cpus_per_worker=float(self.num_cpus_per_worker),
                                    max_failures=-2, no_retry_errors=True,
                                    environment=_driver.environment_of("tensorflow") if backend == "none" else [])
        self._folder = tempfile.mkdtemp(prefix="unisono-")
        secret = os.urandom(32)
        listener = Listener(os.path.join(self._folder, "socket"), authkey=secret)
        asked = {"model_creator": self.model_creator, "data_creator": self.data_creator, "config": self.config, "verbose": self.verbose,
                 "address": listener.address, "secret": secret}
        options = self._group.options(replica.serve, asked)
        self._thread = threading.Thread(target=self._run, args=(options,), name="unisono-sgd", daemon=True)
        self._thread.start()
        accepting = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        accepting.start()
        while accepting.is_alive() and not self._done.is_set():
            accepting.join(0.1)
        if accepting.is_alive():  # the workers are gone: nobody else will knock
            with Client(listener.address, authkey=secret) as knock:
                knock.send(None)
            accepting.join()
        shutil.rmtree(self._folder, ignore_errors=True)
        if len(self._connections) < self.num_replicas:
            self._connections = {}
            self._raise()
        self._call("ready")

    def _run(self, options):
        try:
            left = self._group.trainer.fit(options)
            self._failure = self._group.failure_of(left)
        except BaseException as error:  # shown to whoever calls next
            self._failure = error
        finally:
            self._done.set()

    def _accept(self, listener):
        try:
            while len(self._connections) < self.num_replicas:
                connection = listener.accept()
                rank = connection.recv()
                if rank is None:
                    return
                self._connections[rank] = connection
        except (EOFError, OSError):  # a worker died while it was building its model
            pass
        finally:
            listener.close()

    def _raise(self):
        self._thread.join()
        raise self._failure or RuntimeError("the workers have ended")

    def _call(self, command, argument=None, ranks=None):
        """Sends a command to all replicas and returns their answers, by rank."""
        if not self._connections:
            raise RuntimeError("this TFTrainer is shut down")
        ranks = range(self.num_replicas) if ranks is None else ranks
        try:
            for rank in ranks:
                self._connections[rank].send_bytes(_codec.dumps((command, argument)))
            answers = []
            for rank in ranks:
                while not self._connections[rank].poll(0.1):
                    if self._done.is_set():
                        self._raise()
                answers.append(_codec.loads(self._connections[rank].recv_bytes()))
            return answers
        except (EOFError, ConnectionError):
            self._raise()

    # ---- RaySGD's methods ----

    def train(self) -> Any:
        """One fit; {"train_loss": ...} of rank 0."""
        return self._call("train")[0]

    def validate(self) -> Any:
        """One evaluate; {"validation_loss": ...} of rank 0."""
        stats = self._call("validate")[0]
        if stats is not None:
            return stats
        logger.warning("the replicas' evaluate gave nothing: a model of this process evaluates instead")
        _, data = self.data_creator(self.config)
        return replica.validation_stats(self.get_model(), data, dict(self.config.get("evaluate_config") or {}, verbose=int(self.verbose)))

    def get_model(self) -> Any:
        """A new model with the trained weights, in this process."""
        replica.use_same_keras()
        model = self.model_creator(self.config)
        model.set_weights(self._call("get_state", ranks=[0])[0]["weights"])
        return model

    def save(self, checkpoint: Any) -> Any:
        """Writes the state to a file and returns its name. The file is a pickle with a MAC by your key."""
        data = _codec.dumps(self._call("get_state", ranks=[0])[0])
        path = os.path.abspath(os.fspath(checkpoint))
        with open(path + ".new", "wb") as file:
            file.write(_key.mac(data) + data)
        os.replace(path + ".new", path)
        return checkpoint

    def restore(self, checkpoint: Any) -> None:
        """Reads what save wrote and hands it to all replicas; a file that was not written with your key is refused."""
        with open(checkpoint, "rb") as file:
            code, data = file.read(32), file.read()
        if not _key.fits(data, code):
            raise _codec.PickleRefused("%s was not written with your key: reading it could run any code" % checkpoint)
        self._call("set_state", _codec.loads(data))

    def shutdown(self) -> None:
        """Ends the workers."""
        if self._connections:
            if not self._done.is_set():
                self._call("stop")
            self._thread.join()
            for connection in self._connections.values():
                connection.close()
            self._connections = {}
