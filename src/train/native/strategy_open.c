/*
 * strategy_open.c - a strategy by its name, over the session's communicator where it needs one, or
 * over the cluster of TF_CONFIG when the user started the processes by hand.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/devices.h"
#include "train/native/open.h"
#include "train/shared.h"

#define MAX_DEVICES 64

/* "4": a number from 1 to the most. */
static bool read_count(const char *text, int *out)
{
    char *end = NULL;
    long number = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0;
    *out = (int)number;
    return end && !*end && number >= 1 && number <= UNI__DEVICE_MAX_CPUS;
}

/* "mirrored", "mirrored:4" or "mirrored:cpu:0,cpu:1" (a comma in "cpus:0-1,3" would be one too
 * many: give such lists in C). */
static int open_mirrored(uni_strategy **out, const char *argument, uni_error *err)
{
    char text[1024];
    const char *devices[MAX_DEVICES];
    int count = 0;
    if (!argument || isdigit((unsigned char)*argument)) {
        int number = 0;
        if (argument && !read_count(argument, &number))
            return uni_error_set(err, UNI_EINVAL, "mirrored:%s: not a number of devices", argument);
        return uni_strategy_mirrored(out, number, err);
    }
    if (snprintf(text, sizeof text, "%s", argument) >= (int)sizeof text)
        return uni_error_set(err, UNI_EINVAL, "the list of devices is too long");
    char *rest = NULL;
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        if (count == MAX_DEVICES)
            return uni_error_set(err, UNI_ELIMIT, "at most %d devices in a list", MAX_DEVICES);
        devices[count++] = one;
    }
    return uni_strategy_mirrored_on(out, count, devices, err);
}

static int open_multi_worker(uni_strategy **out, const char *argument, uni_session *session,
                             uni_error *err)
{
    const char *cluster = getenv("TF_CONFIG");
    uni_multi_worker_options options = { .take_comm = true };
    uni_comm *comm = NULL;
    if (argument && !read_count(argument, &options.replicas))
        return uni_error_set(err, UNI_EINVAL,
                             "multi_worker:%s: not a number of replicas per worker", argument);
    if (session && uni__session_is_elastic(session))
        return uni__open_elastic(out, session, &options, err);
    if (session && uni_session_info_of(session)->is_worker)
        UNI_TRY(uni_session_comm(&comm, session, NULL, err));
    else if (cluster && *cluster)
        UNI_TRY(uni_comm_open_tf_config(&comm, cluster, NULL, err));
    else if (session)
        UNI_TRY(uni_session_comm(&comm, session, NULL, err));
    else
        return uni_error_set(err, UNI_EINVAL,
                             "multi_worker needs workers: start the program by `unisono run -n N "
                             "-- PROGRAM`, or by hand with TF_CONFIG in the environment of each");
    int status = uni_strategy_multi_worker(out, comm, &options, err);
    if (status < 0)
        uni_comm_close(comm);
    return status;
}

int uni_strategy_open(uni_strategy **out, const char *name, uni_session *session, uni_error *err)
{
    const char *colon = strchr(name, ':'), *argument = colon ? colon + 1 : NULL;
    size_t length = colon ? (size_t)(colon - name) : strlen(name);
    *out = NULL;
    if (strcmp(name, "none") == 0)
        return uni_strategy_none(out, err);
    if (length == 8 && strncmp(name, "mirrored", 8) == 0)
        return open_mirrored(out, argument, err);
    if (length == 10 && strncmp(name, "one_device", 10) == 0)
        return uni_strategy_one_device(out, argument ? argument : "cpu:0", err);
    if (length == 12 && strncmp(name, "multi_worker", 12) == 0)
        return open_multi_worker(out, argument, session, err);
    if (length == 16 && strncmp(name, "parameter_server", 16) == 0)
        return uni__open_parameter_server(out, argument, session, err);
    return uni_error_set(err, UNI_EINVAL,
                         "strategy \"%s\" is not known; there are: none, mirrored, mirrored:4, "
                         "mirrored:cpu:0,cpu:1, one_device:cpu:0, multi_worker, multi_worker:2 "
                         "(replicas a worker), parameter_server (:sync, :async, :bounded=4)",
                         name);
}
