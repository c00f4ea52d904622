/* strategy_open.c - a strategy by its name, over the session's communicator where it needs one. */
#include <string.h>

#include <unisono/native.h>

int uni_strategy_open(uni_strategy **out, const char *name, uni_session *session, uni_error *err)
{
    *out = NULL;
    if (strcmp(name, "none") == 0)
        return uni_strategy_none(out, err);
    if (strcmp(name, "mirrored") == 0)
        return uni_strategy_mirrored(out, 0, err);
    if (strcmp(name, "multi_worker") != 0)
        return uni_error_set(
            err, UNI_EINVAL,
            "strategy \"%s\" is not known; there are: none, mirrored, multi_worker", name);
    if (!session)
        return uni_error_set(err, UNI_EINVAL, "multi_worker needs the session of a worker");
    uni_comm *comm = NULL;
    UNI_TRY(uni_session_comm(session, NULL, &comm, err));
    int status =
        uni_strategy_multi_worker(out, comm, &(uni_multi_worker_options){ .take_comm = true }, err);
    if (status < 0)
        uni_comm_close(comm);
    return status;
}
