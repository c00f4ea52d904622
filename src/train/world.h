/*
 * world.h - what a worker is told of its world: size, places, what to start from, ports. A run has
 * one for each attempt; a plan, an idle worker and a trial have one without a run. From it come a
 * worker's environment (environment.c) and what its host sees (hosts.c).
 */
#ifndef UNISONO_TRAIN_WORLD_H
#define UNISONO_TRAIN_WORLD_H

#include <unisono/trainer.h>

#include "group/group.h"

typedef struct uni__ports {
    int *fds, *numbers, count; /* held until the run is over */
} uni__ports;

int uni__ports_hold(uni__ports *ports, int count, bool reuse_port, uni_error *err) UNI_MUST_USE;
/* Ports that only a run chooses: they are 0. For plans. */
int uni__ports_plan(uni__ports *ports, int count, uni_error *err) UNI_MUST_USE;
void uni__ports_release(uni__ports *ports);

typedef struct uni__world {
    const uni_trainer *trainer;
    uni__group *group; /* NULL: nothing is started, and ranks are where the plan puts them */
    int size, attempt;
    int share; /* of rank 0 in the devices: a trial is rank 0, and has those of its member */
    const char *dir, *staging_dir, *logs_dir; /* NULL: there is no run */
    const char *checkpoint; /* to start from; NULL or "": none */
    const uni_value *config; /* of a program; workers that run functions get it with their order */
    const uni__ports *ports; /* NULL: none is held here */
} uni__world;

/* What a rank's host sees: all the same as here on one machine and where the storage is shared. */
typedef struct uni__view {
    bool remote, shared;
    uni__rank_place place;
    char run_dir[4096], staging_dir[4096], checkpoint[4096], log[4096];
} uni__view;

void uni__world_view(const uni__world *world, int rank, uni__view *out);
/* List of "NAME=value"; NULL without memory. */
uni_value *uni__world_environment(const uni__world *world, int rank);

/* The kernel takes no longer string (MAX_ARG_STRLEN) in an environment. */
#define UNI__CONFIG_VARIABLE_MAX (120u << 10)
bool uni__config_fits(const uni_value *config);

#endif
