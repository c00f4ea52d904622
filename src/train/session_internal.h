/* session_internal.h - the insides of a session, shared by session*.c and main.c. Only for this
 * module. */
#ifndef UNISONO_TRAIN_SESSION_INTERNAL_H
#define UNISONO_TRAIN_SESSION_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <unisono/session.h>

#include "train/shared.h"
#include "base/msgpack.h"
#include "group/page.h"
#include "group/wire.h"
#include "group/protocol.h"

/* Kinds of calls that warn once when there is no trainer. */
enum {
    UNI__WARNED_REPORT = 1,
    UNI__WARNED_SAVE = 2,
    UNI__WARNED_LOAD = 4,
    UNI__WARNED_DIRECTORY = 8
};

typedef struct uni__snapshot {
    uint8_t *memory;
    size_t size;
} uni__snapshot;

struct uni_session {
    uni_session_info info; /* filled by uni_session_info_of */
    bool is_worker; /* has a controller */
    bool runs_functions;
    int rank, size, local_rank, local_size, node_rank, attempt;
    int role_index, servers, evaluators;
    int nodes; /* hosts of the run */
    bool apart; /* ranks share no memory with all others that may come */
    int *locals; /* ranks of this host */
    bool seals; /* what goes to other hosts */
    bool has_key; /* over several hosts */
    uint8_t data_key[UNI_SESSION_SECRET_BYTES];
    bool ucx; /* carries what goes to other hosts; otherwise MPI */
    char address[64]; /* of this host, towards the controller; "": not known */
    /* Communicators opened over UCX in that group. */
    uint32_t epoch_group, epochs;
    char role[16];
    uni_value *config;
    uni_value *attachment;
    uni_value *datasets, *data_states; /* descriptions by name; what is left of them, or NULL */
    struct uni__shard *shards; /* iterators that were given out */
    uni_value *state; /* {name: bytes} that this rank keeps (session_state.c), or NULL */
    bool state_changed; /* since a report said it */
    bool state_inherited; /* it has positions in datasets of the attempt before */
    uni__packer new_state, said_state; /* sections: the next one, and the one that was said last */
    char *run_dir, *staging_dir, *name, *storage, *checkpoint, *log;
    int resume_fd; /* memfd with an encoded dictionary to resume from, or -1 */
    bool lockstep, detailed;
    bool advanced; /* this rank has reported or saved in this attempt */
    bool answers; /* the controller says which checkpoint is the newest */
    uint32_t newest_serial; /* of the questions for it */
    uint32_t saves; /* of save_checkpoint on this rank, in this attempt */
    /* the snapshot buffer that holds the last checkpoint of this rank; -1: none does */
    int own_slot;
    size_t own_size;
    bool synchronous; /* checkpoints are waited for */
    int64_t every_steps; /* checkpoints of steps: how often; 0: not by steps */
    double every_seconds; /* 0: not by time */
    bool keeps_steps; /* a fit was given what takes them */
    uint32_t group; /* number of the group of ranks that it was started in */
    bool elastic; /* ranks can be replaced one by one */
    bool resizable; /* and there may be more or fewer of them */
    bool joins; /* in the place of one that died, or as one more */
    bool fresh; /* one more: it has no predecessor in the group */
    bool has_met; /* its group has a communicator in which ranks can be replaced */
    bool keeps_ranks; /* a communicator of the train function's own: none can be replaced */
    bool is_asked; /* before its group changes; it saves what it does itself */
    bool trial; /* a stop is told by report() itself, as UNI_ECANCELED */
    unsigned warned;

    /* 1 in the process that claimed the session, 0 in processes forked from it (MADV_WIPEONFORK) */
    const uint8_t *own;
    uni__page *page;
    uni__wire wire;
    int event_fd;
    int64_t iteration;
    bool catches_up; /* a new process repeats what the one before it has done */
    int64_t known; /* reports up to this one were made by the process that it replaces */
    uint64_t last_report_ns, begun_ns;
    char hostname[256];
    char node_ip[48]; /* of this host */
    uni__packer packer; /* reports that do not take the short way */

    struct uni__mail *mail; /* from other ranks, not asked for yet; oldest first */

    pthread_t heart;
    bool heart_runs;
    _Atomic uint32_t heart_stop;
    pthread_mutex_t snapshot_lock;
    pthread_mutex_t send_lock; /* the heart passes buffers while the train function sends mail */
    uni__snapshot snapshots[UNI__SNAPSHOT_SLOTS];
    _Atomic size_t prefault; /* size that the heart should make the second buffer, or 0 */
};

/* session_setup.c */
/* Claims the session that the environment names; *out is NULL (and the return 0) when there is
 * none. Removes the variables. */
int uni__session_claim(uni_session **out, uni_error *err) UNI_MUST_USE;
int uni__session_alone(uni_session **out, uni_error *err) UNI_MUST_USE;
/* Waits for the next order of the controller: the frame's type, or negative. RUN fills the session.
 * function gets the name, malloc'ed. */
int uni__session_next_order(uni_session *session, char **function, uni_error *err) UNI_MUST_USE;
void uni__session_free(uni_session *session);
/* UNI_ESTATE in a process that was forked from the worker: the ring has one writer. */
int uni__session_is_own(const uni_session *session, uni_error *err) UNI_MUST_USE;

/* session_send.c */
/* One message to the controller, in as many frames as it takes; waits for room. UNI_EPEER when the
 * controller is gone. */
int uni__session_say(uni_session *session, int type, const void *data, size_t size,
                     uni_error *err) UNI_MUST_USE;
/* Waits until *word no longer is `value`; keeps the time; UNI_EPEER when the controller is gone. */
int uni__session_wait(uni_session *session, _Atomic uint32_t *word, uint32_t value,
                      uni_error *err) UNI_MUST_USE;
void uni__session_ring_bell(uni_session *session);
bool uni__session_controller_gone(uni_session *session);
void uni__session_warn_alone(uni_session *session, unsigned kind, const char *call);
/* A descriptor to the controller. */
/* On the channel, from any thread; fd -1: none. */
int uni__session_send_frame(uni_session *session, int type, const void *payload, size_t size,
                            int fd, uni_error *err) UNI_MUST_USE;
int uni__session_pass(uni_session *session, int number, int fd, uni_error *err) UNI_MUST_USE;

/* session_peers.c: small messages between ranks, carried by the controller. Not for the step: for
 * finding each other. */
/* To one rank, or with -1 to all others; fd -1: none. */
int uni__session_mail(uni_session *session, int to, const char *key, const void *data, size_t size,
                      int fd, uni_error *err) UNI_MUST_USE;
/* The oldest from that rank under that key; *fd is the caller's (-1: it had none). UNI_ETIMEOUT,
 * UNI_EPEER, UNI_ELIMIT. */
int uni__session_mail_wait(uni_session *session, int from, const char *key, void *data,
                           size_t capacity, size_t *size, int *fd, int timeout_ms,
                           uni_error *err) UNI_MUST_USE;
int uni__session_keep_mail(uni_session *session, uni__wire_frame *frame,
                           uni_error *err) UNI_MUST_USE;
void uni__session_drop_mail(uni_session *session);

/* session_dataset.c */
void uni__session_drop_shards(uni_session *session);
/* Writes down in session->state where all iterators stand; only_shared: those whose state is the
 * same for all ranks. */
int uni__session_note_shards(uni_session *session, bool only_shared, uni_error *err) UNI_MUST_USE;

/* session_state.c */
int uni__session_begin_state(uni_session *session, const uni_value *order) UNI_MUST_USE;
void uni__session_free_state(uni_session *session);
/* The section for the next report, borrowed; *size 0: as the report before said. */
int uni__session_state_section(uni_session *session, const void **out, size_t *size,
                               uni_error *err) UNI_MUST_USE;
void uni__session_state_said(uni_session *session); /* that section is on its way */
/* The section for a checkpoint that stands alone, as of the last report or as of now. */
int uni__session_pack_own_state(uni_session *session, bool of_report, uni__packer *packer,
                                uni_error *err) UNI_MUST_USE;

/* session_checkpoint.c */
/* What a checkpoint belongs to. */
typedef enum uni__checkpoint_kind {
    UNI__OF_REPORT,
    UNI__OF_SAVE, /* v1's save_checkpoint: complete at once */
    UNI__OF_STEP /* only there to resume from, until a later one is complete */
} uni__checkpoint_kind;
/* Hands a checkpoint of this iteration to the controller. */
int uni__session_take_checkpoint(uni_session *session, const uni_checkpoint_source *source,
                                 int64_t iteration, uni__checkpoint_kind kind,
                                 uni_error *err) UNI_MUST_USE;
/* Waits until every checkpoint that this rank has taken is complete, or never will be. */
int uni__session_wait_complete(uni_session *session, uni_error *err) UNI_MUST_USE;
void uni__session_prefault(uni_session *session); /* the heart calls it */
void uni__session_drop_snapshots(uni_session *session);

#endif
