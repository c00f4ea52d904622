/* session.c - opening and closing sessions, and what a worker knows about itself. The interface is
 * unisono/session.h. */
#include <stdlib.h>
#include <string.h>

#include "train/shared.h"
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
        /* The snapshot buffers are shared with the controller, which keeps its own mapping: nothing
         * to wait for but the turn of a checkpoint directory that this process might remove. */
        uni__page *page = session->page;
        for (uint32_t done; (done = atomic_load(&page->checkpoints_done)) !=
                            atomic_load(&page->checkpoints_taken);)
            if (uni__session_wait(session, &page->checkpoints_done, done, NULL) < 0)
                break;
    }
    uni__session_free(session);
}

const uni_session_info *uni_session_info_of(const uni_session *session)
{
    uni_session_info *info = &((uni_session *)session)->info;
    *info = (uni_session_info){
        .world_rank = session->rank,
        .world_size = session->size,
        .local_rank = session->local_rank,
        .local_world_size = session->local_size,
        .node_rank = session->node_rank,
        .attempt = session->attempt,
        .role = session->role,
        .role_index = session->role_index,
        .is_worker = session->is_worker,
        .config = session->config,
        .experiment_name = session->name,
        .run_dir = session->run_dir,
        .storage_path = session->storage,
    };
    return info;
}

int uni__session_role_count(const uni_session *session, const char *role)
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

const uni_value *uni__session_attachment(const uni_session *session)
{
    return session->attachment;
}
