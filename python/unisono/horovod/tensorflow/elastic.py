"""hvd.elastic of the TensorFlow flavour: Keras models with their optimizers, and variables."""

from unisono.extend import strict_module
from unisono.horovod._elastic import HorovodInternalError, HostsUpdatedInterrupt, HostUpdateResult, ObjectState, State, run
from unisono.horovod._keras_elastic import TensorFlowKerasState, TensorFlowState

__all__ = ["HorovodInternalError", "HostUpdateResult", "HostsUpdatedInterrupt", "ObjectState", "State", "TensorFlowKerasState", "TensorFlowState", "run"]
strict_module(globals())
