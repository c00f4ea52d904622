/*
 * persist.h - shared by the two sides of persist.c and persist_thread.c: the requests, and
 * which thread owns which field.
 */
#ifndef UNISONO_TRAIN_PERSIST_H
#define UNISONO_TRAIN_PERSIST_H

#include <pthread.h>
#include <stdatomic.h>

#include "checkpoint/stage.h"
#include "checkpoint/store.h"
#include "train/run_internal.h"

/* One checkpoint on its way. Made by the controller thread; what follows `givers` belongs to the
 * persist thread. */
typedef struct uni__persist_checkpoint {
    struct uni__persist_checkpoint
        *next; /* in the controller's list until it is committed or given up */
    int64_t iteration;
    int attempt, metrics_rank;
    bool alone, of_step;
    uint8_t *metrics; /* msgpack of metrics_rank's report, or NULL */
    size_t metrics_size;
    double timestamp;
    uint64_t since_ns;
    struct uni__giver {
        int rank;
        uint64_t life;
    } * givers; /* that handed in a part */
    int num_givers;
    void *own_state; /* of the rank that handed in one that is alone: a section, or NULL */
    size_t own_state_size;
    void *state; /* of all ranks (checkpoint/state.h), or NULL; made with the commit */
    size_t state_size;
    uni__draft *draft;
    uni_value *scores;
    /* With UNI_KEEP_NONE: the dictionary of the lowest rank, or -1. */
    int memory_fd, memory_rank;
    /* Its parts are not written any more. The controller thread sets it for one that it drops. */
    atomic_bool failed;
} uni__persist_checkpoint;

typedef enum uni__persist_job_kind {
    UNI__PERSIST_ADD_DICT,
    UNI__PERSIST_ADD_DIRECTORY,
    UNI__PERSIST_COMMIT,
    UNI__PERSIST_GIVE_UP,
    UNI__PERSIST_FIND_RESUME,
    UNI__PERSIST_NEWEST,
    UNI__PERSIST_UNPIN,
    UNI__PERSIST_FLUSH,
    UNI__PERSIST_QUIT
} uni__persist_job_kind;

typedef struct uni__persist_job {
    struct uni__persist_job *next;
    uni__persist_job_kind kind;
    uni__persist_checkpoint *checkpoint;
    int rank, slot, attempt;
    uint64_t life;
    uint32_t serial; /* of a question for the newest one */
    uni__region *region; /* a dictionary of `size` bytes, or NULL */
    size_t size;
    char *path;
    bool copy;
    bool again; /* the part is there already */
} uni__persist_job;

struct uni__persist {
    uni__run *run;
    uni__store *store;
    uni__store *steps; /* persist thread: checkpoints of steps; NULL: there are none */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    uni__persist_job *first, *last; /* with lock */
    /* Controller thread. `waiting`: by iteration, so that ranks which catch up complete the oldest
     * first and the newest gets the highest number. `dropped`: iterations of an attempt from which
     * a part is missing, so that other ranks' parts of them are dropped, too. */
    uni__persist_checkpoint *waiting;
    struct {
        int attempt;
        int64_t first, last;
        bool said;
    } dropped;
    uint64_t room; /* of the file system when the run began, in bytes */
    atomic_bool crowded; /* less than half of it is left */
    /* Persist thread: the last complete dictionary when nothing is written, or -1. Never written
     * again: workers resume from it. */
    int memory_fd;
    int64_t memory_iteration;
    void *memory_state; /* that belongs to it, or NULL */
    size_t memory_state_size;
};

/* The newest complete one. With v1 only of those that the policy keeps: its newest is a dictionary
 * in memory. */
const uni__checkpoint_info *uni__persist_latest(const uni__persist *persist);
void uni__persist_checkpoint_free(uni__persist_checkpoint *checkpoint);
/* Bytes that the run's file system has left. */
uint64_t uni__persist_room(const uni__persist *persist);
/* The persist thread itself. */
void *uni__persist_thread(void *persist);
/* persist_steps.c, on the persist thread. */
/* The store for checkpoints of steps, made when the first one comes. */
int uni__steps_store(uni__persist *persist, uni__store **out, uni_error *err) UNI_MUST_USE;
/* The newest of them that verifies, or NULL. */
uni_checkpoint *uni__steps_newest(uni__persist *persist);
/* After the thread has ended. keep: the run may be resumed. */
void uni__steps_end(uni__persist *persist, bool keep);

/* The store's own news, on the persist thread. */
int uni__persist_note_completed(void *persist, const uni__checkpoint_info *info, uni_error *err);
void uni__persist_note_removed(void *persist, int64_t number);

#endif
