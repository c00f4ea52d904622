/*
 * hosts_seal.c - what of a run over several hosts others in the network can read. The
 * controller's own connections are sealed unless no_seal; what workers send to each other is sealed
 * with encrypt if it goes over our own collectives, and cannot be if it goes over a framework's own
 * connections. That is said before the workers start, and with encrypt refused. User's thread, but
 * for say_readable (controller).
 */
#include <stdio.h>
#include <string.h>

#include "train/hosts_internal.h"

/* Backends whose processes connect to each other by themselves. */
static const struct {
    const char *backend, *name, *links;
} frameworks[] = {
    { "tensorflow", "TensorFlow", "gRPC connections (gradients, variables, functions)" },
    { "torch", "PyTorch", "gloo or NCCL connections and its store (gradients, weights)" },
    { "horovod", "Horovod", "MPI or gloo connections (gradients, weights)" },
};

static int framework_of(const uni_trainer *trainer)
{
    for (int i = 0; i < (int)(sizeof frameworks / sizeof frameworks[0]); i++)
        if (strcmp(trainer->options.backend, frameworks[i].backend) == 0)
            return i;
    return -1;
}

int uni__hosts_check_seal(const uni_trainer *trainer, uni_error *err)
{
    const uni__hosts *hosts = trainer->hosts;
    int framework = framework_of(trainer);
    if (hosts->encrypt && !hosts->seal)
        return uni_error_set(err, UNI_EINVAL,
                             "encrypt and no_seal contradict each other: leave one of them out");
    /* Within one host nothing of it passes a network. */
    if (hosts->encrypt && framework >= 0 && hosts->num_hosts != 1)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "encrypt: %s's own %s between hosts cannot be sealed; leave encrypt "
                             "out where the network is trusted (a VPN, IPsec), or use the backend "
                             "native",
                             frameworks[framework].name, frameworks[framework].links);
    return 0;
}

int uni__hosts_choose_transport(uni__run *run, uni_error *err)
{
    uni__hosts *hosts = run->trainer->hosts;
    uni__rank_place place;
    const char *without = NULL;
    for (int r = 0; r < run->num_workers && !without; r++)
        if (uni__group_place(run->group, r, &place) && !place.ucx)
            without = place.host;
    hosts->ucx = hosts->wanted == UNI__TRANSPORT_UCX || !hosts->launcher->offers_mpi ||
                 (hosts->wanted == UNI__TRANSPORT_ANY && !without);
    /* Over ssh a program that does without the library's collectives does without it. */
    if (!hosts->ucx || !without || hosts->wanted == UNI__TRANSPORT_ANY)
        return 0;
    return uni_error_set(err, UNI_EUNSUPPORTED,
                         "the transport ucx: host %.100s does not have libunisono-ucx.so (Debian: "
                         "libucx-dev, and build unisono again)%s",
                         without,
                         hosts->launcher->offers_mpi ? ", or choose the transport mpi" : "");
}

bool uni__hosts_keep_ranks(const uni_trainer *trainer)
{
    const uni__hosts *hosts = trainer->hosts;
    return !hosts || (hosts->launcher->is_outlived && !hosts->foreign); /* so it is UCX */
}

bool uni__hosts_use_ucx(const uni_trainer *trainer)
{
    return trainer->hosts && trainer->hosts->ucx;
}

int uni__hosts_add_links(const uni_trainer *trainer, const char *address, uni_value *order)
{
    const uni__hosts *hosts = trainer->hosts;
    if (!hosts)
        return 0;
    if (uni_dict_take(order, "ucx", uni_value_bool(hosts->ucx)) < 0 ||
        uni_dict_take(order, "address", uni_value_string(address ? address : "")) < 0)
        return UNI_ENOMEM;
    int status =
        uni_dict_take(order, "data_key", uni_value_bytes(hosts->data_key, sizeof hosts->data_key));
    return status | uni_dict_take(order, "seals", uni_value_bool(hosts->encrypt));
}

void uni__hosts_say_readable(uni__run *run, int num_hosts)
{
    const uni_trainer *trainer = run->trainer;
    const uni__hosts *hosts = trainer->hosts;
    int framework = framework_of(trainer);
    bool native = strcmp(trainer->options.backend, "native") == 0;
    char data[300] = "";
    if (num_hosts < 2 || run->attempt.number > 1)
        return;
    if (framework >= 0)
        snprintf(data, sizeof data,
                 "%s's own %s; any process that reaches their ports can join, so use a "
                 "network that you trust",
                 frameworks[framework].name, frameworks[framework].links);
    else if (hosts->encrypt && !native)
        snprintf(data, sizeof data, "connections that the program makes itself");
    else if (!hosts->encrypt)
        snprintf(data, sizeof data, "gradients that %s carries (--encrypt seals them)%s",
                 hosts->ucx ? "UCX" : "MPI",
                 native ? "" : " and connections that the program makes itself");
    if (!hosts->seal)
        uni__run_tell(run, UNI_EVENT_WARNING, -1,
                      "readable in the network: all that passes between the controller and the "
                      "hosts (--no-seal)%s%s",
                      data[0] ? ", and " : "", data);
    else if (data[0])
        uni__run_tell(run, UNI_EVENT_WARNING, -1, "readable in the network: %s", data);
}
