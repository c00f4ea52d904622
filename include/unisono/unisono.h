/*
 * unisono.h - the public headers of libunisono: runs, workers, collectives, checkpoints, datasets,
 * search. Tensors, models and strategies are in libraries of their own, which a program that does
 * not train need not load: <unisono/nn.h> (libunisono-engine), <unisono/native.h>
 * (libunisono-native). docs/c.md says how to build with each, docs/architecture.md has the map.
 */
#ifndef UNISONO_UNISONO_H
#define UNISONO_UNISONO_H

#include <unisono/array.h>
#include <unisono/checkpoint.h>
#include <unisono/comm.h>
#include <unisono/data.h>
#include <unisono/data_readers.h>
#include <unisono/log.h>
#include <unisono/preprocess.h>
#include <unisono/run.h>
#include <unisono/session.h>
#include <unisono/status.h>
#include <unisono/table.h>
#include <unisono/track.h>
#include <unisono/trainer.h>
#include <unisono/tune.h>
#include <unisono/value.h>
#include <unisono/version.h>

#endif
