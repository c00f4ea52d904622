"""ray.train.constants' place: the names of autofilled metrics."""

TIMESTAMP = "_timestamp"
TIME_THIS_ITER_S = "_time_this_iter_s"
TRAINING_ITERATION = "_training_iteration"
PYTORCH_PROFILER_KEY = "_train_torch_profiler"
