/* main_internal.h - this program as uni_main describes it to the trainer. Only for this module. */
#ifndef UNISONO_TRAIN_MAIN_INTERNAL_H
#define UNISONO_TRAIN_MAIN_INTERNAL_H

#include <unisono/trainer.h>

struct uni_program {
    const uni_function *functions;
    int argc;
    char **argv;
};

#endif
