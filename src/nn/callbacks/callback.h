/*
 * callback.h - the parts of a callback, the list that fit calls, and what callbacks share:
 * monitored values, printing to a descriptor. For src/nn only. All on fit's thread.
 */
#ifndef UNISONO_NN_CALLBACK_H
#define UNISONO_NN_CALLBACK_H

#include "nn/layer.h"

struct uni_callback {
    const uni_callback_class *class_;
    void *self;
};

typedef struct uni__callbacks {
    int count;
    uni_callback **items;
    bool batch_logs; /* some callback wants the logs of every batch */
    bool after_batch;
    uni_callback *progbar; /* fit's own */
} uni__callbacks;

/* The user's list, and the bar (verbose > 0) after it, as Keras orders them. */
int uni__callbacks_make(uni__callbacks *callbacks, uni_callback *const *given, int count,
                        int verbose, const uni_fit_info *info, uni_error *err) UNI_MUST_USE;
void uni__callbacks_free(uni__callbacks *callbacks);
bool uni__callbacks_has(const uni__callbacks *callbacks, const char *name);

/* Whether the user's callbacks do something at batches; a progress bar does not count. */
bool uni__callbacks_act_between_batches(const uni__callbacks *callbacks);

/* {"EarlyStopping 0": state, ...}. The keys are a name and a count within that name, because other
 * ranks have other callbacks in between. */
int uni__callbacks_get_states(const uni__callbacks *callbacks, uni_value **out,
                              uni_error *err) UNI_MUST_USE;
int uni__callbacks_set_states(const uni__callbacks *callbacks, const uni_value *states,
                              uni_error *err) UNI_MUST_USE;

/* Calls the slot of every callback that has it, in order; stops at the first error. */
#define UNI__CALLBACKS(status, callbacks, slot, ...)                                               \
    do {                                                                                           \
        (status) = 0;                                                                              \
        for (int uni_i_ = 0; (status) >= 0 && uni_i_ < (callbacks)->count; uni_i_++) {             \
            uni_callback *uni_c_ = (callbacks)->items[uni_i_];                                     \
            if (uni_c_->class_->slot != NULL)                                                      \
                (status) = uni_c_->class_->slot(uni_c_->self, __VA_ARGS__);                        \
        }                                                                                          \
    } while (0)

/* A monitored value: which direction is better, and whether the logs have it. */
typedef struct uni__monitor {
    char name[64];
    bool maximize;
    double min_delta, best;
    bool has_best;
    bool warned;
} uni__monitor;
/* UNI_MONITOR_AUTO knows by the name which direction is better, and refuses a name that does not
 * tell. */
int uni__monitor_init(uni__monitor *monitor, const char *name, uni_monitor_mode mode,
                      double min_delta, uni_error *err) UNI_MUST_USE;
/* The value, or NaN with one warning if the logs do not have it. */
double uni__monitor_read(uni__monitor *monitor, const uni_logs *logs, const char *user);
bool uni__monitor_better(const uni__monitor *monitor, double value, double than);
/* The best value so far, as a part of a callback's state. */
int uni__monitor_put(const uni__monitor *monitor, uni_value *state);
void uni__monitor_take(uni__monitor *monitor, const uni_value *state);
/* A state of integers: {"wait": 3, ...}. NULL if out of memory. */
uni_value *uni__callback_numbers(size_t count, const char *const *names, const int64_t *values);

/* printf to a descriptor. Ignores errors: a closed terminal must not fail the training. */
void uni__print_fd(int fd, const char *format, ...) UNI_PRINTF(2, 3);

/* Progress for evaluate and predict as well: fit's own bar knows its target from here. */
void uni__progbar_set_target(uni_callback *progbar, const uni_fit_info *info);

/* Allocates self of `size` bytes and the callback; NULL self when there is no memory. */
void *uni__callback_make(uni_callback **out, const uni_callback_class *class_, size_t size,
                         uni_error *err);

#endif
