/*
 * remote_internal.h - the controller's picture of its hosts, shared by remote.c (their life),
 * remote_take.c (what they say) and remote_send.c (what they are told). Controller thread.
 */
#ifndef UNISONO_GROUP_REMOTE_INTERNAL_H
#define UNISONO_GROUP_REMOTE_INTERNAL_H

#include "group/internal.h"
#include "group/keyring.h"
#include "group/launchers.h"
#include "group/remote.h"

#define UNI__STRANGERS_MAX 16

typedef struct uni__remote_host {
    uni__link *link; /* NULL: gone */
    int node, first_rank, num_ranks;
    char name[256], address[64], reached[64], scratch[256];
    double cpus, memory;
    uni_value *program; /* hashes, or NULL */
    bool hello, probed, shares_storage, silent, all_dead;
    bool lost; /* while the run was under way */
    bool ucx; /* it has our plug-in for it */
    bool signalled; /* the launcher has told its processes to end */
} uni__remote_host;

typedef struct uni__remote_rank {
    uni__remote_host *host;
    int local_rank, port;
    bool saw_stopping;
    uni__control_words sent;
    uint32_t busy[2]; /* this snapshot buffer came and was not given back */
} uni__remote_rank;

/* Connections that were refused for one reason from one address. */
typedef struct uni__stranger {
    char address[64], why[256];
    unsigned count;
} uni__stranger;

struct uni__remote {
    uni__listener *listener; /* NULL unless hosts are expected */
    uni__credentials credentials;
    uni__keyring *ring;
    /* Where agents announce their keys: the launcher's output, or a file for each rank. */
    char *announced_in, *announced_by_rank;
    int64_t announced_offset;
    uni__stranger strangers[UNI__STRANGERS_MAX];
    int num_strangers;
    unsigned other_strangers;
    uni__remote_host **hosts;
    int num_hosts, num_ranks;
    uni__remote_rank *ranks;
    uni_value *names, *program;
    char *token_path, *token;
    double hello_timeout, silent_timeout;
    uint64_t launched_ns, pulse_ns;
    uint64_t ending_ns, hosts_gone_ns; /* 0: not ending; 0: not yet */
    bool launched, placed, launcher_asked, agent_told;
    bool foreign, term_is_stop, is_openmpi;
    uint64_t daemon_looked_ns;
    uni__launcher_daemon daemon; /* foreign: what this process was started by */
    bool retiring; /* all has gone well: the launcher ends by itself */
    bool is_outlived; /* hosts go on when the launcher ends */
    char launcher_name[64];
    uint64_t
        trouble_ns; /* since when the news behind `trouble` is waited for; 0: nothing is wrong */
    char trouble[512];
    bool fresh; /* reports came since `drained` was told */
    /* A host that is to come while the run is under way (remote_more.c). */
    struct uni__remote_more {
        unsigned serial; /* of its launcher */
        bool waits;
        int first_rank, count;
        uint64_t since_ns;
        char name[256];
    } more;
};

/* remote_strangers.c */
void uni__remote_refuse(uni__group *group, const char *address, const char *why);
void uni__remote_look_for_keys(uni__group *group);
/* All hosts are there, or none is expected any more: nothing can connect, and what was refused so
 * far is summed up. */
void uni__remote_stop_listening(uni__group *group);

/* remote.c */
void uni__remote_fail_launch(uni__group *group, const char *sentence);
uni__remote_host *uni__remote_host_of_link(uni__remote *remote, const uni__link *link);
/* Ends what is left when the hosts' workers are gone, or took too long. */
void uni__remote_advance_ending(uni__group *group);
/* The host of a rank while it is connected, or NULL. */
uni__remote_host *uni__remote_host_of(uni__group *group, int rank);

/* remote_launcher.c */
/* SIGTERM on a host; and its launcher's daemon is gone. */
void uni__remote_signalled(uni__group *group, uni__remote_host *host, int number);
void uni__remote_orphaned(uni__group *group, uni__remote_host *host, const char *daemon);
/* A host that goes away is not to blame, or not yet: the launcher ended it, or never started
 * another one. */
bool uni__remote_excuses(uni__group *group, const uni__remote_host *host, const char *sentence);
void uni__remote_watch_launcher(uni__group *group, uint64_t now); /* at every tick */

/* remote_more.c */
/* Whether these are the ranks of the host that is to come, and are free. */
bool uni__remote_more_expects(const uni__remote *remote, const uni_value *ranks);
/* The host has said something of itself: is it all here? */
void uni__remote_more_look(uni__group *group, uni__remote_host *host);
/* True: it is the host that is to come, and does not. */
bool uni__remote_more_lost(uni__group *group, uni__remote_host *host, const char *why);
void uni__remote_more_tick(uni__group *group, uint64_t now);

/* remote_take.c */
void uni__remote_on_frame(void *context, uni__link *link, int type, const uint8_t *payload,
                          size_t size);

#endif
