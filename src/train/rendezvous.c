/*
 * rendezvous.c - the ranks of a run as peers of a communicator (comm/rendezvous.h): small values
 * and descriptors go by the controller's mail, and the session's page says when the attempt is over
 * or a rank frozen.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "comm/rendezvous.h"
#include "train/session_internal.h"
#include "base/options.h"

static int put(void *context, const char *key, const void *data, size_t size, uni_error *err)
{
    return uni__session_mail(context, -1, key, data, size, -1, err);
}

static int get(void *context, int rank, const char *key, void *data, size_t capacity, size_t *size,
               int timeout_ms, uni_error *err)
{
    return uni__session_mail_wait(context, rank, key, data, capacity, size, NULL, timeout_ms, err);
}

static int pass(void *context, int to, int fd, uni_error *err)
{
    return uni__session_mail(context, to, "descriptor", NULL, 0, fd, err);
}

static int receive(void *context, int from, int *fd, int timeout_ms, uni_error *err)
{
    char nothing[1];
    size_t size;
    *fd = -1;
    UNI_TRY(uni__session_mail_wait(context, from, "descriptor", nothing, sizeof nothing, &size, fd,
                                   timeout_ms, err));
    return *fd >= 0 ? 0 : uni_error_set(err, UNI_EFORMAT, "rank %d sent no descriptor", from);
}

static bool alive(void *context, int rank, char *why, size_t why_size)
{
    uni_session *session = context;
    if (atomic_load(&session->page->suspect) != (uint32_t)rank + 1)
        return true;
    snprintf(why, why_size, "is stopped or silent");
    return false;
}

static void alarm_reason(void *context, char *why, size_t why_size)
{
    uni_session *session = context;
    snprintf(why, why_size, "%.*s", (int)sizeof session->page->alarm_reason - 1,
             session->page->alarm_reason);
}

static const uni__rendezvous_vtable session_vtable = { .name = "session",
                                                       .put = put,
                                                       .get = get,
                                                       .pass = pass,
                                                       .receive = receive,
                                                       .alive = alive,
                                                       .abort_reason = alarm_reason };

int uni_session_comm(uni_comm **out, uni_session *session, const uni_comm_options *options,
                     uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_comm_options, options, record_dir, err);
    if (!session->is_worker || session->size == 1)
        return uni_comm_open_threads(out, 1, options, err);
    uni_comm_options with_records = *options;
    char *records = NULL;
    /* What each rank was doing stays readable in the run directory after everything was killed. */
    if (!with_records.record_dir) {
        records = uni__path_join(session->run_dir, "collectives", NULL);
        if (!records)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
        UNI_TRY(uni__make_dirs(records, 0700, err));
        with_records.record_dir = records;
    }
    uni__rendezvous peers = { .vtable = &session_vtable,
                              .context = session,
                              .rank = session->rank,
                              .size = session->size,
                              .abort_word = &session->page->alarm,
                              .data_key = session->seals ? session->data_key : NULL };
    int status;
    if (session->nodes <= 1)
        status = uni__comm_open_shm(out, &peers, &with_records, 0, err);
    else if (session->nodes == session->size)
        status = uni__comm_open_mpi(out, &peers, &with_records, NULL, err);
    else
        status = uni__comm_open_hosts(out, &peers, session->locals, session->local_size,
                                      &with_records, NULL, err);
    free(records);
    return status;
}
