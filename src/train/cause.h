/* cause.h - why an attempt failed: a class, a rank, a sentence. Any thread. */
#ifndef UNISONO_TRAIN_CAUSE_H
#define UNISONO_TRAIN_CAUSE_H

#include <unisono/run.h>

#include "group/group.h"

/* class, name in files, exit code of the command (0: the cause has its own) */
#define UNI__CAUSE_LIST(X)                                                                         \
    X(NONE, "none", 0)                                                                             \
    X(EXIT, "exit", 0)                                                                             \
    X(SIGNAL, "signal", 0)                                                                         \
    X(ERROR, "error", UNI_EXIT_FAILURE)                                                            \
    X(OOM, "oom", 0)                                                                               \
    X(STOPPED, "stopped", UNI_EXIT_FROZEN)                                                         \
    X(SILENT, "silent", UNI_EXIT_FROZEN)                                                           \
    X(NO_HELLO, "no_hello", UNI_EXIT_NOT_STARTED)                                                  \
    X(PREEMPTED, "preempted", UNI_EXIT_PREEMPTED)                                                  \
    X(DISK_FULL, "disk_full", UNI_EXIT_DISK_FULL)                                                  \
    X(TIME_LIMIT, "time_limit", UNI_EXIT_TIME_LIMIT)                                               \
    X(NO_PROGRESS, "no_progress", UNI_EXIT_TIME_LIMIT)                                             \
    X(AGENT, "agent", UNI_EXIT_INTERNAL)                                                           \
    X(HOST, "host_lost", UNI_EXIT_HOST_LOST)                                                       \
    X(LAUNCHER, "launcher", UNI_EXIT_HOST_LOST)                                                    \
    X(LAUNCH, "launch", UNI_EXIT_NOT_STARTED)                                                      \
    X(CHECKPOINT, "checkpoint", UNI_EXIT_FAILURE)                                                  \
    X(INTERNAL, "internal", UNI_EXIT_INTERNAL)

typedef enum uni__cause_class {
#define UNI__CAUSE_ENUM(name, text, exit_code) UNI__CAUSE_##name,
    UNI__CAUSE_LIST(UNI__CAUSE_ENUM)
#undef UNI__CAUSE_ENUM
} uni__cause_class;

typedef struct uni__cause {
    uni__cause_class kind;
    int rank; /* -1: of no rank in particular */
    int pid, exit_code, signal, attempt;
    int64_t iteration;
    double time;
    int error_code; /* the uni_status for the caller */
    char host[256];
    char message[UNI_ERROR_MESSAGE_SIZE]; /* a whole sentence, rank and all */
    char hint[200]; /* the end of `message`: the rank that had returned before; or empty */
    char *log_tail; /* up to 20 lines, or NULL */
} uni__cause;

int uni__cause_exit_code(const uni__cause *cause);
/* A death, from how the process ended. We did not ask for it. */
void uni__cause_of_exit(uni__cause *cause, int rank, const uni__exit *how, bool runs_functions,
                        bool had_returned);
/* A death that RLIMIT_AS may have caused: the message names the limit, if there is one. */
void uni__cause_name_limit(uni__cause *cause, double address_space);
uni_value *uni__cause_to_value(const uni__cause *cause);
void uni__cause_clear(uni__cause *cause);

#endif
