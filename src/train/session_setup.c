/*
 * session_setup.c - how a process becomes a worker: it finds its descriptors in UNISONO_SESSION,
 * claims the page, and reads the controller's orders.
 *
 * A session belongs to the first process that claims it (a compare-and-swap of its pid into the
 * page). A worker that runs functions must be the agent's own child; a program started by `unisono
 * run` may be a script whose child links the library, so there any descendant that inherited the
 * descriptors may claim. The variable is removed at once: children of a worker are not workers.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/shared.h"
#include "base/clock.h"
#include "group/agent.h"
#include "train/session_internal.h"

#define HEARTBEAT_MS 250

static void *heart(void *argument)
{
    uni_session *session = argument;
    while (!atomic_load(&session->heart_stop)) {
        atomic_fetch_add(&session->page->heartbeat, 1);
        if (atomic_load(&session->prefault))
            uni__session_prefault(session);
        uni__futex_wait(&session->heart_stop, 0, HEARTBEAT_MS);
    }
    return NULL;
}

static int start_heart(uni_session *session, uni_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&session->heart, NULL, heart, session);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return uni_error_set_errno(err, error, "cannot start the heartbeat thread of a worker");
    session->heart_runs = true;
    return 0;
}

static int new_session(uni_session **out, uni_error *err)
{
    uni_session *session = calloc(1, sizeof *session);
    *out = session;
    if (!session)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a session");
    pthread_mutex_init(&session->snapshot_lock, NULL);
    pthread_mutex_init(&session->send_lock, NULL);
    session->wire.fd = session->event_fd = session->resume_fd = -1;
    session->size = session->local_size = session->attempt = 1;
    snprintf(session->role, sizeof session->role, "worker");
    snprintf(session->node_ip, sizeof session->node_ip, "127.0.0.1");
    session->begun_ns = session->last_report_ns = uni__monotonic_ns();
    if (gethostname(session->hostname, sizeof session->hostname - 1) < 0)
        snprintf(session->hostname, sizeof session->hostname, "localhost");
    return 0;
}

int uni__session_alone(uni_session **out, uni_error *err)
{
    UNI_TRY(new_session(out, err));
    uni_session *session = *out;
    session->config = uni_value_dict();
    session->run_dir = strdup("");
    session->staging_dir = strdup("");
    session->name = strdup("");
    session->storage = strdup("");
    if (session->config && session->run_dir && session->staging_dir && session->name &&
        session->storage)
        return 0;
    uni__session_free(session);
    *out = NULL;
    return uni_error_set(err, UNI_ENOMEM, "no memory for a session");
}

typedef struct identity {
    char mode;
    int parent, channel, page, event;
} identity;

/* true when the variable names descriptors that this process really has. */
static bool read_identity(identity *out)
{
    const char *text = getenv(UNI__SESSION_VARIABLE);
    int version = 0, used = 0;
    if (!text ||
        sscanf(text, "%d:%c:%d:%d:%d:%d%n", &version, &out->mode, &out->parent, &out->channel,
               &out->page, &out->event, &used) != 6 ||
        text[used] || version != 1)
        return false;
    if (out->mode == 'f' && getppid() != out->parent)
        return false;
    return fcntl(out->channel, F_GETFD) >= 0 && fcntl(out->page, F_GETFD) >= 0 &&
           fcntl(out->event, F_GETFD) >= 0;
}

/* A page that the kernel empties in every child: a reader knows whether it is the worker
 * itself, without a system call. */
static int mark_own(uni_session *session, uni_error *err)
{
    uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return uni_error_set_errno(err, errno, "no memory for a session");
    (void)madvise(page, 4096, MADV_WIPEONFORK);
    page[0] = 1;
    session->own = page;
    return 0;
}

int uni__session_is_own(const uni_session *session, uni_error *err)
{
    if (*session->own)
        return 0;
    return uni_error_set(err, UNI_ESTATE,
                         "this process was forked from a worker: only the worker itself may report "
                         "and save checkpoints");
}

static int claim_page(uni_session *session, const identity *self, uni_error *err)
{
    UNI_TRY(uni__page_map(&session->page, self->page, err));
    if (session->page->magic != UNI__PAGE_MAGIC || session->page->version != UNI__PAGE_VERSION)
        return uni_error_set(err, UNI_EVERSION,
                             "this program's unisono library does not match the one of its "
                             "trainer: use the same release");
    uint32_t owner = 0;
    if (!atomic_compare_exchange_strong(&session->page->owner, &owner, (uint32_t)getpid()))
        return uni_error_set(err, UNI_EBUSY,
                             "process %u has opened this worker's session already; only one may",
                             owner);
    session->event_fd = self->event;
    fcntl(self->event, F_SETFD, FD_CLOEXEC);
    fcntl(self->channel, F_SETFD, FD_CLOEXEC);
    close(self->page);
    uni__wire_init(&session->wire, self->channel);
    UNI_TRY(mark_own(session, err));
    session->is_worker = true;
    session->runs_functions = self->mode == 'f';
    return start_heart(session, err);
}

int uni__session_claim(uni_session **out, uni_error *err)
{
    identity self;
    *out = NULL;
    bool named = read_identity(&self);
    unsetenv(UNI__SESSION_VARIABLE);
    if (!named)
        return 0;
    int status;
    uni_session *session = NULL;
    UNI_TRY(new_session(&session, err));
    UNI_TRY_GOTO(claim_page(session, &self, err), fail);
    uint8_t hello[64];
    uni__packer packer = { .data = hello, .capacity = sizeof hello, .fixed = true };
    uni__pack_map(&packer, 1);
    uni__pack_string(&packer, "pid", 3);
    uni__pack_int(&packer, getpid());
    UNI_TRY_GOTO(uni__session_say(session, UNI__SAYS_HELLO, hello, packer.size, err), fail);
    *out = session;
    return 0;
fail:
    uni__session_free(session);
    return status;
}

static int keep_string(char **slot, const uni_value *order, const char *key)
{
    free(*slot);
    *slot = strdup(uni_dict_get_string(order, key, ""));
    return *slot ? 0 : UNI_ENOMEM;
}

static bool keep_ranks(int **slot, const uni_value *order, const char *key, int count)
{
    const uni_value *list = uni_dict_get(order, key);
    free(*slot);
    *slot = calloc((size_t)count + 1, sizeof **slot);
    for (int i = 0; *slot && i < count; i++)
        (*slot)[i] = (int)uni_value_as_int(uni_list_get(list, (size_t)i), -1);
    return *slot && (int)uni_list_size(list) == count;
}

static int begin_run(uni_session *session, const uni_value *order, uni__wire_frame *frame,
                     char **function, uni_error *err)
{
    const struct {
        int *where;
        const char *key;
    } numbers[] = {
        { &session->rank, "rank" },
        { &session->size, "world_size" },
        { &session->local_rank, "local_rank" },
        { &session->local_size, "local_world_size" },
        { &session->node_rank, "node_rank" },
        { &session->attempt, "attempt" },
        { &session->role_index, "role_index" },
        { &session->servers, "servers" },
        { &session->evaluators, "evaluators" },
        { &session->nodes, "nodes" },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        *numbers[i].where = (int)uni_dict_get_int(order, numbers[i].key, *numbers[i].where);
    snprintf(session->role, sizeof session->role, "%s",
             uni_dict_get_string(order, "role", "worker"));
    if (session->nodes > 1 && !keep_ranks(&session->locals, order, "locals", session->local_size))
        return uni_error_set(err, UNI_EFORMAT, "the order to begin a run does not name the hosts");
    size_t key_size = 0;
    const void *key = uni_value_as_bytes(uni_dict_get(order, "data_key"), &key_size);
    session->has_key = key && key_size == sizeof session->data_key;
    session->seals = session->has_key && uni_dict_get_bool(order, "seals", false);
    if (session->has_key)
        memcpy(session->data_key, key, sizeof session->data_key);
    session->ucx = uni_dict_get_bool(order, "ucx", false);
    session->apart = uni_dict_get_bool(order, "apart", false);
    snprintf(session->address, sizeof session->address, "%s",
             uni_dict_get_string(order, "address", ""));
    session->epoch_group = session->epochs = 0;
    session->lockstep = uni_dict_get_bool(order, "lockstep", false);
    session->detailed = uni_dict_get_bool(order, "detailed", false);
    session->trial = uni_dict_get_bool(order, "trial", false);
    session->group = (uint32_t)uni_dict_get_int(order, "group", 0);
    session->elastic = uni_dict_get_bool(order, "elastic", false);
    session->resizable = uni_dict_get_bool(order, "resizable", false);
    session->fresh = uni_dict_get_bool(order, "fresh", false);
    session->joins = session->catches_up = uni_dict_get_bool(order, "joins", false);
    session->has_met = session->keeps_ranks = session->is_asked = false;
    snprintf(session->node_ip, sizeof session->node_ip, "%s",
             uni_dict_get_string(order, "node_ip", "127.0.0.1"));
    session->answers = uni_dict_get_bool(order, "answers", false);
    session->synchronous = uni_dict_get_bool(order, "synchronous", false);
    session->every_steps = uni_dict_get_int(order, "every_steps", 0);
    session->every_seconds = uni_dict_get_float(order, "every_seconds", 0);
    session->keeps_steps = false;
    /* A restarted group counts on from its checkpoint, on all ranks, whether they load it or
     * not. */
    session->iteration = uni_dict_get_int(order, "iteration", 0);
    atomic_store(&session->page->iteration, session->iteration);
    session->known = session->iteration;
    session->advanced = false;
    session->saves = 0;
    session->own_slot = -1;
    uni_value_free(session->config);
    session->config = uni_value_copy(uni_dict_get(order, "config"));
    int status = session->config ? 0 : UNI_ENOMEM;
    const uni_value *attachment = uni_dict_get(order, "attachment");
    uni_value_free(session->attachment);
    session->attachment = attachment ? uni_value_copy(attachment) : NULL;
    status |= attachment && !session->attachment ? UNI_ENOMEM : 0;
    uni__session_drop_shards(session);
    uni_value_free(session->datasets);
    const uni_value *datasets = uni_dict_get(order, "datasets");
    session->datasets = datasets ? uni_value_copy(datasets) : NULL;
    status |= datasets && !session->datasets ? UNI_ENOMEM : 0;
    status |= uni__session_begin_state(session, order);
    status |= keep_string(&session->run_dir, order, "run_dir");
    status |= keep_string(&session->staging_dir, order, "staging_dir");
    status |= keep_string(&session->name, order, "name");
    status |= keep_string(&session->storage, order, "storage");
    status |= keep_string(&session->checkpoint, order, "checkpoint");
    status |= keep_string(&session->log, order, "log");
    *function = strdup(uni_dict_get_string(order, "function", ""));
    if (status != 0 || !*function)
        return uni_error_set(err, UNI_ENOMEM, "no memory to begin a run");
    if (session->resume_fd >= 0)
        close(session->resume_fd);
    session->resume_fd = -1;
    if (frame->num_fds > 0) {
        session->resume_fd = frame->fds[0];
        frame->fds[0] = -1;
    }
    session->begun_ns = session->last_report_ns = uni__monotonic_ns();
    return 0;
}

int uni__session_next_order(uni_session *session, char **function, uni_error *err)
{
    *function = NULL;
    for (;;) {
        uni__wire_frame frame;
        uni_value *order = NULL;
        UNI_TRY(uni__wire_receive(&session->wire, &frame, -1, err));
        int type = frame.type, status = 0;
        if (type == UNI__TO_WORKER_RUN) {
            uni__session_drop_mail(session);
            status = uni__msgpack_read(&order, frame.payload, frame.size, err);
            if (status == 0)
                status = begin_run(session, order, &frame, function, err);
            uni_value_free(order);
        } else if (type == UNI__TO_WORKER_PEER) {
            status = uni__session_keep_mail(session, &frame, err);
        }
        uni__wire_frame_done(&frame);
        if (status < 0 || type != UNI__TO_WORKER_PEER)
            return status < 0 ? status : type;
    }
}

void uni__session_free(uni_session *session)
{
    if (!session)
        return;
    if (session->heart_runs) {
        atomic_store(&session->heart_stop, 1);
        uni__futex_wake(&session->heart_stop);
        pthread_join(session->heart, NULL);
    }
    uni__session_drop_snapshots(session);
    uni__session_drop_mail(session);
    uni__page_unmap(session->page);
    if (session->own)
        munmap((void *)session->own, 4096);
    uni__wire_close(&session->wire);
    if (session->event_fd >= 0)
        close(session->event_fd);
    if (session->resume_fd >= 0)
        close(session->resume_fd);
    uni__packer_free(&session->packer);
    uni_value_free(session->config);
    uni__session_drop_shards(session);
    uni_value_free(session->datasets);
    uni__session_free_state(session);
    uni_value_free(session->attachment);
    free(session->run_dir);
    free(session->staging_dir);
    free(session->name);
    free(session->storage);
    free(session->checkpoint);
    free(session->log);
    free(session->locals);
    pthread_mutex_destroy(&session->snapshot_lock);
    pthread_mutex_destroy(&session->send_lock);
    free(session);
}
