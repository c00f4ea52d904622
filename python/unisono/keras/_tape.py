"""GradientTape, and gradients inside of a strategy's run."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Iterator

from unisono import _engine
from unisono.extend import Refused, strict_class
from unisono.keras._tensor import Tensor, Variable, context, tape_for

__all__ = ["GradientTape", "LazyGradient"]


class LazyGradient:
    """A gradient inside of strategy.run: the engine computes, sums over the replicas and applies it in optimizer.apply_gradients."""

    __slots__ = ("loss", "variable")

    def __init__(self, loss: Any, variable: Any):
        self.loss, self.variable = loss, variable

    def __getattr__(self, name):
        raise ValueError("inside of strategy.run a gradient is summed over the replicas by optimizer.apply_gradients and cannot be changed before it; "
                         "clip with clipnorm=, clipvalue= or global_clipnorm= of the optimizer")


@strict_class({"persistent": Refused(False, "the engine frees what it recorded when gradient() is called: use a tape for each gradient")},
              methods={"gradient": {"output_gradients": Refused(None, "multiply the target by them before")}})
class GradientTape:
    """Records what is computed inside of `with`, for one call of gradient()."""

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True):
        self._asked: set = set()
        self._context = self._native = None
        self._done, self._variables, self._watched = False, {}, []
        self._store = None
        self._watches = watch_accessed_variables

    def __enter__(self):
        here = context()
        if here.recording is not None:
            raise NotImplementedError("a GradientTape inside of another: the engine records one step at a time and has no gradients of gradients")
        here.recording, self._context = self, here
        return self

    def __exit__(self, *error):
        self._context.recording = None

    def _begin(self, here, model, training):
        if self._native is None:
            if model is None and here.last_model is not None:
                model = here.last_model()
            native = None if model is None else model._for_tape()
            if here.tape is None:
                here.tape = _engine.Tape(here.threads)
            training = bool(training)
            seed = 0 if model is None else model._seed or 0
            if here.replica is not None:
                here.replica.begin(here.tape, native, training, seed)
            else:
                here.tape.begin(training, True, native, seed, here.steps)
            here.steps += 1
            self._native = here.tape
            self._store = None if native is None else native.store
        elif model is not None:
            if model._for_tape().store != self._store:
                raise NotImplementedError("this tape records another model (or other operations came first): call one model in a GradientTape, "
                                          "before anything else in it")
        if model is not None:
            here.last_model = weakref.ref(model)
        return self._native

    def _variable(self, variable):
        if not self._watches and variable._p.handle not in self._asked:
            return variable._p
        tape = self._begin(self._context, None, None)
        if variable._p.store == self._store:
            return variable._p
        key = variable._p.handle
        if key not in self._variables:
            self._variables[key] = (tape.watch(variable._p.array()), variable)
        return self._variables[key][0]

    def watch(self, tensor: Any) -> None:
        """Asks for the gradient of a tensor. Variables are watched by themselves, unless watch_accessed_variables=False."""
        for each in tensor if isinstance(tensor, (list, tuple)) else [tensor]:
            if isinstance(each, Variable):
                self._asked.add(each._p.handle)
                continue
            if not isinstance(each, Tensor):
                raise ValueError("a tape watches tensors and variables, not %s" % type(each).__name__)
            tape = tape_for() if self._context.recording is self else self._native
            each._t = tape.watch(each._t)

    @contextlib.contextmanager
    def stop_recording(self) -> Iterator[None]:
        """What is computed inside is not recorded."""
        self._context.recording = None
        try:
            yield
        finally:
            self._context.recording = self

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None) -> Any:
        """d target / d sources, in the structure of sources; None where target does not depend on one. Once a tape."""
        single = not isinstance(sources, (list, tuple))
        flat = [sources] if single else list(sources)
        if self._native is None:
            raise ValueError("nothing was computed on this tape")
        if isinstance(target, (list, tuple)):
            raise NotImplementedError("gradient() of several targets: add them up")
        if not isinstance(target, Tensor):
            raise TypeError("the target must be a tensor, not %s" % type(target).__name__)
        if self._done:
            raise NotImplementedError("gradient() once a tape: the engine frees what it recorded on the way back")
        if self._context.replica is not None and all(isinstance(each, Variable) and each._p.store == self._store for each in flat):
            out = [LazyGradient(target, each) if each.trainable else None for each in flat]
        else:
            out = self._compute(target, flat)
        return out[0] if single else out

    def _compute(self, target, flat):
        self._done = True
        asked = []
        for each in flat:
            if isinstance(each, Variable):
                watched = self._variables.get(each._p.handle)
                asked.append(each._p if watched is None else watched[0])
            elif isinstance(each, Tensor):
                asked.append(each._t)
            else:
                raise TypeError("gradients are of variables and tensors, not of %s" % type(each).__name__)
        return [None if each is None else Tensor(each) for each in self._native.gradient(target._t, asked)]

    def reset(self) -> None:
        """Forgets what was recorded."""
        self._native, self._done, self._variables = None, False, {}
