/*
 * host_internal.h - the insides of unisono-host, the agent of a run on one of its hosts.
 *
 * mpirun or srun starts one such process for every rank, because each worker must find the
 * variables that the launcher made for its rank; ssh starts one for all ranks of a host. On each
 * host the first of them (local rank 0) does the work: it has the workers of the host in a group
 * (group.h) and hands on what they say to the controller (group/remote.h). The others give it their
 * variables over an abstract socket, and stay until it ends. Controller thread of the group, but
 * for main.
 */
#ifndef UNISONO_TRAIN_REMOTE_HOST_INTERNAL_H
#define UNISONO_TRAIN_REMOTE_HOST_INTERNAL_H

#include <pthread.h>

#include "base/dict.h"
#include "group/group.h"
#include "group/launchers.h"
#include "group/network.h"
#include "group/remote.h"
#include "group/protocol.h"

/* A checkpoint on its way to the controller. */
typedef struct host_transfer {
    bool active;
    uni__region *region; /* a snapshot buffer, or NULL: a directory */
    int slot;
    uint64_t offset, size;
    uni_value *files; /* of the directory: relative paths */
    size_t next_file;
    char *directory;
    int fd; /* the file that is being sent, or -1 */
    uint8_t *message; /* what is said when all of it is there */
    size_t message_size;
    int message_type; /* -1: a line of the report pipe */
    bool keep; /* the directory is the program's own */
    char *failure; /* why the directory cannot be sent, or NULL */
} host_transfer;

typedef struct host_worker {
    int rank; /* in the run */
    uni_value *variables; /* "NAME=value" that the launcher made for it */
    int donor; /* connection to the process that gave them, or -1 */
    uni__worker_words said;
    uni__control_words control;
    host_transfer transfer;
    uint8_t *parts; /* of the next message to it */
    size_t parts_size;
    int memory_fd; /* that goes with it, or -1 */
    char *log; /* to be handed on, or NULL */
    int64_t log_read;
} host_worker;

typedef struct host_agent {
    uni__launched launched;
    uni__credentials credentials;
    char addresses[UNI__NETWORK_MAX][48];
    int num_addresses, port;
    char scratch[64];
    uni__group *group;
    uni__link *link;
    host_worker *workers;
    int num_workers;
    int *held_ports, num_held; /* sockets that keep them */
    double silent_timeout, cpus, memory;
    bool shares_storage, ending, orphaned;
    bool tidy; /* removes what Open MPI leaves behind */
    bool by_ssh; /* it has all ranks of the host, and goes on when its connection ends */
    uni__launcher_daemon daemon;
    uint64_t pulse_ns, begun_ns;
    int retries; /* of the connection to the controller */
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool over; /* with lock */
    int exit_code;
} host_agent;

/* host_main.c */
void host_over(host_agent *self, int exit_code); /* main ends the process */
/* Tries to connect once more in a moment; false when it was tried for too long. */
bool host_connect_later(host_agent *self);
void host_tidy(const host_agent *self); /* removes what Open MPI would leave behind */
int host_hold_port(host_agent *self, const char *address);
int host_make_scratch(host_agent *self, uni_error *err) UNI_MUST_USE;

/* host_check.c: says what is here, and ends; for UNISONO_JOIN that begins with "check:". Returns
 * the exit code. */
int host_check(const char *text);
bool host_has_ucx(void); /* our plug-in for it can be opened here */

/* host_ssh.c. order: sets the variables that come on standard input. take_ranks: false when they do
 * not make sense. ssh: the launcher, which gives its exit code; place: "FIRST:ALL", the first rank
 * of these hosts and the number of all ranks, or NULL. */
int host_read_order(uni_error *err) UNI_MUST_USE;
bool host_take_ranks(uni__launched *out);
int host_ssh(const char *agent, const char *program, const char *list, const char *place);

/* host_join.c: the processes of one host find each other */
int host_gather(host_agent *self, uni_error *err) UNI_MUST_USE;
int host_donate(host_agent *self); /* in the others; returns their exit code */
uni_value *host_own_variables(void);
bool host_is_launchers(const char *pair); /* a variable that the launcher made for one rank */

/* host_orders.c */
extern const uni__link_events host_link_events;

/* host_relay.c */
extern const uni__group_events host_group_events;
void host_say(host_agent *self, int slot, int type, const void *payload, size_t size);
void host_say_message(host_agent *self, int slot, int type, const uint8_t *payload, size_t size);
void host_say_words(host_agent *self, int slot, bool even_if_same);
void host_say_value(host_agent *self, int type, uni_value *message); /* takes it */
void host_spawn_failed(void *self, int slot, const char *sentence);
int host_slot_of(const host_agent *self, int rank); /* -1: it is on another host */
void host_check_parent(host_agent *self); /* says once that the launcher's daemon is gone */
void host_hold_when_full(host_agent *self); /* the rings are not read while much is queued */

/* host_transfer.c */
/* true when the message was taken and will be said later, after what it speaks of. */
bool host_transfer_begin(host_agent *self, int slot, int type, const uint8_t *payload, size_t size);
bool host_transfer_begin_line(host_agent *self, int slot, const char *line, size_t size);
void host_transfer_pump(host_agent *self);
void host_forward_log(host_agent *self, int slot);
void host_worker_forget(host_worker *worker);
/* A file from the controller, below the scratch directory. */
void host_take_file(host_agent *self, const uint8_t *payload, size_t size);

#endif
