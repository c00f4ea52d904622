"""ray.train.constants' place: names of autofilled metrics, of environment variables, and defaults."""

from pathlib import Path as _Path

TIMESTAMP = "_timestamp"
TIME_THIS_ITER_S = "_time_this_iter_s"
TRAINING_ITERATION = "_training_iteration"
DATE, HOSTNAME, NODE_IP, PID, TIME_TOTAL_S = "_date", "_hostname", "_node_ip", "_pid", "_time_total_s"
DETAILED_AUTOFILLED_KEYS = {DATE, HOSTNAME, NODE_IP, PID, TIME_TOTAL_S}
BASIC_AUTOFILLED_KEYS = {TIMESTAMP, TIME_THIS_ITER_S, TRAINING_ITERATION}
PYTORCH_PROFILER_KEY = "_train_torch_profiler"
ALL_RESERVED_KEYS = {PYTORCH_PROFILER_KEY}
TRAIN_DATASET_KEY, WILDCARD_KEY = "train", "*"
MODEL_KEY, PREPROCESSOR_KEY = "model", "_preprocessor"
TUNE_CHECKPOINT_ID = "_current_checkpoint_id"
TUNE_CHECKPOINT_FILE_NAME = "checkpoint"
ENABLE_DETAILED_AUTOFILLED_METRICS_ENV = "TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS"
DEFAULT_RESULTS_DIR = _Path("~/unisono_results").expanduser()
