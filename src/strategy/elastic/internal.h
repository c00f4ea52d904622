/*
 * internal.h - what the files of this folder share: a rank's line, what is left of a communicator
 * that failed, the results of calls, and the elastic part of a strategy.
 */
#ifndef UNISONO_STRATEGY_ELASTIC_INTERNAL_H
#define UNISONO_STRATEGY_ELASTIC_INTERNAL_H

#include "strategy/elastic/elastic.h"

#define UNI__MOST_REMEMBERED 16 /* callbacks with a state */
#define UNI__IN_STEP INT64_MAX
/* What the ranks say of themselves. */
enum {
    UNI__ROW_IS_NEW,
    UNI__ROW_STEP,
    UNI__ROW_PLACE,
    UNI__ROW_SLOT,
    UNI__ROW_PAGES, /* number of the group whose pages the weights are in; -1: none */
    UNI__ELASTIC_ROW
};

/* What a callback remembers, by hash. */
typedef struct uni__remembered {
    uint64_t name, state;
} uni__remembered;

/* What a new process must know of the one that it replaces. */
typedef struct uni__biography {
    uint64_t entered; /* the last step that it began; its callbacks had done all before */
    uint64_t marked; /* the step after the last epoch whose end it came to */
    int64_t reports; /* then */
    uint64_t factored; /* the last step in which kernels had factors for gradients */
    uint64_t finished; /* the last step of which it has updated all that is its own */
    uint64_t acts_between_batches; /* its callbacks do */
    uint64_t num_remembered; /* more than UNI__MOST_REMEMBERED: too many to compare */
    uni__remembered remembered[UNI__MOST_REMEMBERED];
} uni__biography;

/* A rank's line. Counts follow. */
typedef struct uni__elastic_line {
    _Atomic uint64_t shown; /* the step; 0: none */
    uint64_t reserved[7];
    uni__update_journal journal;
    uni__biography life;
} uni__elastic_line;

/* What a communicator had when it failed: read until all have met over the next one. */
typedef struct uni__elastic_remains {
    uni_comm *comm;
    uint32_t number;
    int rank, size;
    int *slots; /* NULL: nothing is left */
    uni_comm_buffer *lines;
    uni__biography *lives; /* over hosts, instead of lines */
    uni__fused fused;
} uni__elastic_remains;

/* Results of calls since the last step of an epoch, each a size and bytes. */
typedef struct uni__elastic_results {
    uint8_t *bytes;
    size_t size, capacity;
    size_t next; /* offset of the first that this rank has not taken */
    int64_t taken;
} uni__elastic_results;

struct uni__elastic {
    const uni__membership_vtable *vtable;
    void *context;
    uint32_t number;
    int *slots; /* of the present communicator's ranks */
    bool apart; /* ranks are on several hosts, and each has its own weights (apart.c) */
    bool resizes; /* the parts of batches can be cut for other ranks */
    bool joins; /* until it has joined */
    bool leaves; /* it was told to, and does */
    bool catches_up; /* until it has come to where the others are */
    bool active; /* in a fit whose steps can be recovered */
    bool own_calls; /* collective calls outside of fits */
    int fit; /* how many fits this rank has begun */
    int fit_of_others; /* of a new rank that has met them, and not joined yet; 0: it has not */
    uni_value *fits; /* those that have ended, each as bytes (fits.c) */
    bool compares; /* the callbacks' states, in the next step */
    bool moves; /* the weights are in the new pages, or on their way there */
    bool moved_out; /* they have left the old pages, in a meeting that failed */
    uni_model *model; /* in fit */
    int source; /* of the present meeting */
    uint64_t seed; /* of fit */
    int64_t others; /* reports that the source had made when this rank joined */
    uni_comm_buffer *lines; /* of the present communicator; made by the first step */
    size_t num_counts; /* in a line */
    uni__biography *lives; /* over hosts, by rank, as they were gathered last; or NULL */
    uint64_t gathered; /* the step in which they were */
    uint64_t unchecked; /* a step that this rank took over: the others do not compare weights */
    /* The step under way, from when it is shown until it ends. */
    bool shown;
    uint64_t step;
    int64_t place; /* calls since the step before it, or UNI__IN_STEP */
    uni__trained trained;
    bool begun; /* the optimizer has counted it */
    bool factored; /* this rank's rows of kernels with factors are updated */
    double samples; /* of the step before, for new pages */
    /* After the last step of an epoch, until the next one: where fit stood, packed. */
    void *after;
    size_t after_size;
    uni__elastic_results results;
    /* A new rank: sums of the step that the others completed before it joined. */
    double *made;
    size_t num_made;
    uni__elastic_remains old;
};

/* elastic.c */
bool uni__elastic_is_loss(int status); /* a peer died, or the way to it is closed */
uni__elastic_line *uni__elastic_mine(const uni__elastic *elastic); /* not over hosts */
double *uni__elastic_counts(uni__elastic_line *of);
int uni__elastic_make_lines(uni_strategy *strategy, uni_error *err) UNI_MUST_USE;
/* As checkpoints are packed: states of callbacks may have arrays. *out is malloc'ed. */
int uni__elastic_pack(void **out, size_t *size, const uni_value *dict, uni_error *err) UNI_MUST_USE;
/* This rank has come to where the others are. */
void uni__elastic_catch_up(uni__elastic *elastic, int64_t reports);

/* calls.c */
void uni__elastic_forget_calls(uni__elastic *elastic);

/* fits.c: the fits that have ended, told by the source to those that are new. In every meeting. */
int uni__elastic_share_fits(uni_strategy *strategy, const int64_t *info,
                            uni_error *err) UNI_MUST_USE;
/* A new rank: the present fit ended with this model and history. */
int uni__elastic_adopt_fit(const uni_strategy *strategy, uni_model *model, uni_value **history,
                           uni_error *err) UNI_MUST_USE;

/* apart.c: over hosts */
uni__biography *uni__elastic_life(const uni_strategy *strategy); /* on one host, too */
bool uni__elastic_has_lines(const uni__elastic *elastic);
int uni__elastic_make_lives(uni_strategy *strategy, uni_error *err) UNI_MUST_USE;
/* All ranks tell all others what they remember. */
int uni__elastic_gather_lives(uni_strategy *strategy, uni_error *err) UNI_MUST_USE;
/* 3 and 4 of elastic.h, of a survivor and of a new rank. */
int uni__elastic_settle_apart(uni_strategy *strategy, const int64_t *info, int *how,
                              uni_error *err) UNI_MUST_USE;
int uni__elastic_join_apart(uni_strategy *strategy, uni_model *model, const int64_t *info,
                            uni_error *err) UNI_MUST_USE;
/* Whether every step of this model needs gradients of all ranks. */
bool uni__elastic_can_apart(const uni_model *model);

/* position.c: where fit stands, told by the source to all others. info: as agreed (meeting.c). */
int uni__elastic_tell(uni_strategy *strategy, const int64_t *info, bool decided,
                      uni_error *err) UNI_MUST_USE;
/* model: of a new rank; NULL: a survivor, which knows where fit stands. */
int uni__elastic_hear(uni_strategy *strategy, uni_model *model, uni_error *err) UNI_MUST_USE;

/* meeting.c */
/* What is known of the rank with that slot in the communicator that failed; NULL: it had none. */
uni__biography *uni__elastic_life_left(const uni_strategy *strategy, int64_t slot);
bool uni__elastic_is_resized(const uni_strategy *strategy); /* this rank has another part */
void uni__elastic_let_go(uni__elastic_remains *old);
/* Waits for the next group. *how: UNI__STEP_REPEAT, UNI__STEP_RECUT, or 0 for a step that is
 * complete. */
int uni__elastic_regroup(uni_strategy *strategy, int *how, uni_error *err) UNI_MUST_USE;

#endif
