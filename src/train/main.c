/*
 * main.c - uni_main: one program, driver and worker.
 *
 * In a worker: claim the session, run the functions that the controller names, one after the other
 * (warm workers), exit when told to or when the controller is gone. SIGTERM there means preemption:
 * the handler marks the page and rings the controller, which lets all ranks stop at the same
 * iteration.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <unisono/trainer.h>

#include "train/shared.h"
#include "base/msgpack.h"
#include "base/text.h"
#include "checkpoint/dict.h"
#include "train/main_internal.h"
#include "comm/rendezvous.h"
#include "train/session_internal.h"

#define EXIT_INTERNAL 70

/* For the signal handler only: a process runs at most one worker loop. */
static uni_session *signalled_session;

static void on_sigterm(int number)
{
    uni_session *session = signalled_session;
    if (!session)
        return;
    uint32_t none = UNI__STOP_NONE;
    atomic_compare_exchange_strong(&session->page->stop_request, &none, UNI__STOP_PREEMPTED);
    uni__session_ring_bell(session);
}

/* uni_main's way of finding a function: by name in the program's list. */
static int call_by_name(void *context, uni_session *session, const char *name, uni_value **result,
                        uni_error *err)
{
    for (const uni_function *at = context; at && at->name; at++) {
        if (strcmp(at->name, name) != 0)
            continue;
        int status = at->call(session, result, err);
        /* As an exit code it would be a failure. */
        return status > 0 ? uni_error_set(err, UNI_EINVAL,
                                          "the train function returned %d: return 0, or a negative "
                                          "uni_status after an error",
                                          status)
                          : status;
    }
    return uni_error_set(err, UNI_ENOTFOUND, "this program has no train function \"%s\"", name);
}

/* failure: what the function left, or NULL. One that is too large is left out: the error itself
 * must arrive. */
static int say_error(uni_session *session, const uni_error *error, const uni_value *failure)
{
    uni__packer packer = { 0 }, left = { 0 };
    const char *message = error->message[0]
                              ? error->message
                              : "the train function returned an error without a message";
    bool fits = failure && uni__pack_value(&left, failure, NULL) == 0 && !left.overflow &&
                left.size <= UNI_FAILURE_MAX;
    uni__pack_map(&packer, fits ? 3 : 2);
    uni__pack_string(&packer, "code", 4);
    uni__pack_int(&packer, error->code < 0 ? error->code : UNI_EFUNCTION);
    uni__pack_string(&packer, "message", 7);
    uni__pack_string(&packer, message, strlen(message));
    if (fits) {
        uni__pack_string(&packer, "failure", 7);
        uni__pack_raw(&packer, left.data, left.size);
    }
    uni__packer_free(&left);
    int status = packer.overflow
                     ? UNI_ENOMEM
                     : uni__session_say(session, UNI__SAYS_ERROR, packer.data, packer.size, NULL);
    uni__packer_free(&packer);
    return status;
}

/* The result may hold arrays, so it travels in the form of a dictionary checkpoint. Takes the
 * result. */
static int say_return(uni_session *session, uni_value *result)
{
    uni_error err = { 0 };
    size_t size = 0;
    void *bytes = NULL;
    uni_value *wrapped = uni_value_dict();
    int status = uni_dict_take(wrapped, "result", result ? result : uni_value_null());
    if (status == 0)
        status = uni__dict_encoded_size(wrapped, &size, &err);
    if (status == 0 && !(bytes = malloc(size)))
        status = uni_error_set(&err, UNI_ENOMEM, "no memory for the result of %zu bytes", size);
    if (status == 0)
        status = uni__dict_encode(wrapped, bytes, size, &err);
    if (status == 0)
        status = uni__session_say(session, UNI__SAYS_RETURN, bytes, size, &err);
    else
        status = say_error(session, &err, NULL);
    free(bytes);
    uni_value_free(wrapped);
    return status;
}

static int run_function(uni_session *session, uni__worker_call call, void *context,
                        const char *name)
{
    uni_error err = { 0 };
    uni_value *result = NULL;
    int status = call(context, session, name, &result, &err);
    fflush(NULL);
    if (status < 0) {
        err.code = err.code < 0 ? err.code : status;
        fprintf(stderr, "unisono: rank %d: %s\n", uni_session_info_of(session)->world_rank,
                err.message);
        status = say_error(session, &err, result);
        uni_value_free(result);
        return status;
    }
    return say_return(session, result);
}

/* A warm worker writes to the log of the run that it works for. */
static void write_to_log(const char *path)
{
    int log = path && path[0] ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (log < 0)
        return;
    fflush(NULL);
    dup2(log, 1);
    dup2(log, 2);
    close(log);
}

static int serve(uni_session *session, uni__worker_call call, void *context)
{
    signalled_session = session;
    struct sigaction action = { .sa_handler = on_sigterm, .sa_flags = SA_RESTART };
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        char *name = NULL;
        int order = uni__session_next_order(session, &name, NULL);
        if (order == UNI__TO_WORKER_RUN)
            write_to_log(session->log);
        int status = order == UNI__TO_WORKER_RUN ? run_function(session, call, context, name) : -1;
        free(name);
        if (order == UNI__TO_WORKER_SHUTDOWN)
            return 0;
        if (status < 0)
            return EXIT_INTERNAL; /* the controller is gone or speaks another language */
    }
}

int uni__worker_serve(uni__worker_call call, void *context, uni_error *err)
{
    uni_session *session = NULL;
    UNI_TRY(uni__session_claim(&session, err));
    if (!session || !session->runs_functions) {
        uni__session_free(session);
        return uni_error_set(
            err, UNI_ESTATE,
            "this process was not started by a trainer as a worker that runs functions");
    }
    int code = serve(session, call, context);
    signalled_session = NULL;
    /* The caller may leave by _exit. All ranks have been told to end, so none is waited for in
     * vain. */
    if (code == 0)
        uni__comm_finish();
    uni__session_free(session);
    return code;
}

int uni_main(int argc, char **argv, const uni_function *functions, uni_driver driver)
{
    const char *variable = getenv("UNISONO_SESSION");
    /* A program started by `unisono run` runs its driver; the session waits there for
     * uni_session_open. */
    if (variable && strncmp(variable, "1:f:", 4) == 0) {
        uni_error err = { 0 };
        int code = uni__worker_serve(call_by_name, (void *)functions, &err);
        if (code >= 0)
            exit(code);
        /* otherwise it is a child of a worker that inherited the variable: a driver like any
         * other */
        if (err.code != UNI_ESTATE) {
            fprintf(stderr, "unisono: %s\n", err.message);
            exit(EXIT_INTERNAL);
        }
    }
    uni_program program = { .functions = functions, .argc = argc, .argv = argv };
    return driver(&program, argc, argv);
}
