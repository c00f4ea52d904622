/* session.c - opening and closing sessions, and what a worker knows about itself. The interface is unisono/session.h. */
#include <stdlib.h>
#include <string.h>

#include "train/session_internal.h"

int uni_session_open(uni_session **out, uni_error *err)
{
    uni_session *session = NULL;
    char *function = NULL;
    *out = NULL;
    UNI_TRY(uni__session_claim(&session, err));
    if (!session)
        return uni__session_alone(out, err);
    if (session->runs_functions) {
        uni__session_free(session);
        return uni_error_set(
            err, UNI_ESTATE,
            "this worker was started to run functions by name: let main be `return uni_main(...)`, "
            "and use the session that the function is given");
    }
    int order = uni__session_next_order(session, &function, err);
    free(function);
    if (order < 0) {
        uni__session_free(session);
        return order;
    }
    *out = session;
    return 0;
}

void uni_session_close(uni_session *session)
{
    if (!session)
        return;
    if (session->is_worker && uni__session_say(session, UNI__SAYS_CLOSED, NULL, 0, NULL) == 0) {
        /* The snapshot buffers are shared with the controller, which keeps its own mapping: nothing to wait for but the turn of
         * a checkpoint directory that this process might remove. */
        uni__page *page = session->page;
        for (uint32_t done; (done = atomic_load(&page->checkpoints_done)) !=
                            atomic_load(&page->checkpoints_taken);)
            if (uni__session_wait(session, &page->checkpoints_done, done, NULL) < 0)
                break;
    }
    uni__session_free(session);
}

int uni_session_world_rank(const uni_session *session)
{
    return session->rank;
}

int uni_session_world_size(const uni_session *session)
{
    return session->size;
}

int uni_session_local_rank(const uni_session *session)
{
    return session->local_rank;
}

int uni_session_local_world_size(const uni_session *session)
{
    return session->local_size;
}

int uni_session_node_rank(const uni_session *session)
{
    return session->node_rank;
}

const char *uni_session_role(const uni_session *session)
{
    return session->role;
}

int uni_session_role_index(const uni_session *session)
{
    return session->role_index;
}

int uni_session_role_count(const uni_session *session, const char *role)
{
    bool chief = session->servers > 0;
    if (strcmp(role, "chief") == 0)
        return chief;
    if (strcmp(role, "ps") == 0)
        return session->servers;
    if (strcmp(role, "evaluator") == 0)
        return session->evaluators;
    return strcmp(role, "worker") == 0
               ? session->size - session->servers - session->evaluators - chief
               : 0;
}

bool uni_session_secret(const uni_session *session, uint8_t out[UNI_SESSION_SECRET_BYTES])
{
    bool known = session->has_key && session->nodes > 1;
    if (known)
        memcpy(out, session->data_key, sizeof session->data_key);
    return known;
}

int uni_session_attempt(const uni_session *session)
{
    return session->attempt;
}

const uni_value *uni_session_config(const uni_session *session)
{
    return session->config;
}

const uni_value *uni_session_attachment(const uni_session *session)
{
    return session->attachment;
}

const char *uni_session_experiment_name(const uni_session *session)
{
    return session->name;
}

const char *uni_session_run_dir(const uni_session *session)
{
    return session->run_dir;
}

const char *uni_session_storage_path(const uni_session *session)
{
    return session->storage;
}

bool uni_session_is_worker(const uni_session *session)
{
    return session->is_worker;
}
