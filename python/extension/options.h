/* options.h - options of trainers and runs from Python dictionaries. For this module only. */
#ifndef UNISONO_PYTHON_OPTIONS_H
#define UNISONO_PYTHON_OPTIONS_H

#include "door.h"

/* Arrays of borrowed strings, freed together. */
#define DOOR_STRINGS_MAX 4
typedef struct door_strings {
    const char **lists[DOOR_STRINGS_MAX];
    int count;
} door_strings;

void door_strings_free(door_strings *strings);
/* Borrows strings from the keywords: valid as long as these. */
int door_trainer_options(uni_trainer_options *out, PyObject *keywords, door_strings *strings);

/* A run's options and the data that they point to. */
#define DOOR_SINKS_MAX 16
struct door_run {
    uni_run_options options;
    uni_checkpoint_policy policy;
    uni_value *config, *attachment, *from_dict, *tags[DOOR_SINKS_MAX];
    uni_sink *sinks[DOOR_SINKS_MAX];
    int num_sinks;
    PyObject *asked; /* owns the strings */
};

int door_run_options(door_state *state, door_run *out, PyObject *asked);
void door_run_free(door_run *run);

#endif
