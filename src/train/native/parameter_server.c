/*
 * parameter_server.c - parameter servers over the session: roles and the mail between ranks become
 * the strategy's cluster (strategy/server/cluster.h).
 */
#include "train/native/open.h"

#include <stdlib.h>
#include <string.h>
#include <unisono/experimental/evaluator.h>

#include "train/shared.h"
#include "strategy/server/cluster.h"
#include "base/options.h"

static int send_mail(void *context, int to, const char *key, const void *data, size_t size, int fd,
                     uni_error *err)
{
    return uni__session_send(context, to, key, data, size, fd, err);
}

static int receive_mail(void *context, const char *prefix, int *from,
                        char key[UNI__CLUSTER_KEY_SIZE], void *data, size_t capacity, size_t *size,
                        int *fd, int timeout_ms, uni_error *err)
{
    return uni__session_receive(context, prefix, from, key, data, capacity, size, fd, timeout_ms,
                                err);
}

static bool is_over(void *context, char *why, size_t why_size)
{
    return uni__session_is_over(context, why, why_size);
}

static const uni__cluster_vtable session_cluster = {
    .name = "session", .send = send_mail, .receive = receive_mail, .over = is_over
};

int uni_strategy_parameter_server(uni_strategy **out, uni_session *session,
                                  const uni_parameter_server_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_parameter_server_options, options, join_timeout, err);
    if (!session || !uni_session_info_of(session)->is_worker)
        return uni_error_set(err, UNI_EINVAL,
                             "parameter_server needs the processes of a run: a trainer with "
                             ".servers, or `unisono run -n 2 --servers 1 -- PROGRAM`");
    if (strcmp(uni_session_info_of(session)->role, "evaluator") == 0)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "an evaluator does not train: when uni_session_role says evaluator, "
                             "call uni_session_evaluate in the place of the strategy");
    uni__cluster cluster = { .vtable = &session_cluster,
                             .context = session,
                             .rank = uni_session_info_of(session)->world_rank,
                             .workers = uni__session_role_count(session, "worker"),
                             .servers = uni__session_role_count(session, "ps") };
    bool over_hosts =
        uni_session_info_of(session)->local_world_size < uni_session_info_of(session)->world_size;
    if (over_hosts && uni__session_role_count(session, "evaluator") > 0)
        return uni_error_set(
            err, UNI_EUNSUPPORTED,
            "parameter servers over several hosts have no evaluator: all ranks are "
            "members of one MPI world; leave --evaluators out");
    if (over_hosts)
        UNI_TRY(uni_session_comm(&cluster.comm, session, NULL, err));
    return uni__strategy_parameter_server(out, &cluster, options, err);
}

/* "parameter_server", ":sync", ":async", ":bounded=4". */
int uni__open_parameter_server(uni_strategy **out, const char *argument, uni_session *session,
                               uni_error *err)
{
    uni_parameter_server_options options = { 0 };
    char *end = NULL;
    if (!argument || strcmp(argument, "async") == 0) {
        options.mode = UNI_PS_ASYNCHRONOUS;
    } else if (strcmp(argument, "sync") == 0) {
        options.mode = UNI_PS_SYNCHRONOUS;
    } else if (strncmp(argument, "bounded=", 8) == 0) {
        options.mode = UNI_PS_BOUNDED;
        long number = strtol(argument + 8, &end, 10);
        if (end == argument + 8 || *end || number < 0 || number > 1000000)
            return uni_error_set(err, UNI_EINVAL,
                                 "parameter_server:%s: write bounded=N, with the updates that may "
                                 "come between a worker's read and its own",
                                 argument);
        options.staleness = (int)number;
    } else {
        return uni_error_set(err, UNI_EINVAL,
                             "parameter_server:%s is not known; there are: async, sync, bounded=N",
                             argument);
    }
    return uni_strategy_parameter_server(out, session, &options, err);
}
