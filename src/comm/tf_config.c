/*
 * tf_config.c - a communicator for processes that the user started by hand with TF_CONFIG, as
 * TensorFlow's MultiWorkerMirroredStrategy reads it. The cluster's chief and workers are the ranks,
 * in that order, and must be on this host.
 *
 * Nothing listens on the addresses. They only name the cluster, and processes of this user find
 * each other by that name (named.c). Called on the rank's thread.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <unisono/value.h>

#include "comm/shared.h"
#include "base/file.h"
#include "base/text.h"
#include "comm/internal.h"
#include "base/options.h"

static bool is_here(const char *host, size_t length)
{
    static const char *const names[] = { "localhost", "::1", "[::1]", "0.0.0.0" };
    char own[256] = "";
    (void)gethostname(own, sizeof own - 1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == length && strncasecmp(host, names[i], length) == 0)
            return true;
    return strncmp(host, "127.", 4) == 0 ||
           (strlen(own) == length && strncasecmp(host, own, length) == 0);
}

typedef struct cluster {
    int size, rank;
    const char *host; /* the first that may not be this host */
    size_t host_length;
    uni__text name; /* all addresses */
    char **labels; /* "worker 1 (localhost:2223)", by rank */
} cluster;

static int add_address(cluster *all, const char *address, uni_error *err)
{
    const char *colon = address ? strrchr(address, ':') : NULL;
    if (!colon || colon == address || !isdigit((unsigned char)colon[1]))
        return uni_error_set(err, UNI_EINVAL, "TF_CONFIG: \"%s\" is not an address host:port",
                             address ? address : "");
    size_t length = (size_t)(colon - address);
    if (!is_here(address, length) && !all->host) {
        all->host = address;
        all->host_length = length;
    } else if (!is_here(address, length) &&
               (length != all->host_length || strncmp(address, all->host, length) != 0)) {
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "TF_CONFIG names workers on several hosts (%.*s and %.*s): over hosts "
                             "start them by `unisono run --launcher mpi --hosts ...`",
                             (int)all->host_length, all->host, (int)length, address);
    }
    uni__text_add_format(&all->name, "%s ", address);
    return 0;
}

static int add_job(cluster *all, const uni_value *jobs, const char *job, const char *type,
                   int64_t index, uni_error *err)
{
    const uni_value *list = uni_dict_get(jobs, job);
    int64_t count = (int64_t)uni_list_size(list);
    if (strcmp(job, type) == 0) {
        if (index < 0 || index >= count)
            return uni_error_set(err, UNI_EINVAL,
                                 "TF_CONFIG: task %s %lld is not in the cluster, which has %lld",
                                 type, (long long)index, (long long)count);
        all->rank = all->size + (int)index;
    }
    char **labels = realloc(all->labels, ((size_t)all->size + (size_t)count + 1) * sizeof *labels);
    if (!labels)
        return uni_error_set(err, UNI_ENOMEM, "no memory for TF_CONFIG");
    all->labels = labels;
    for (int64_t i = 0; i < count; i++) {
        const char *address = uni_value_as_string(uni_list_get(list, (size_t)i), "");
        char label[300];
        snprintf(label, sizeof label, "%s %lld (%.200s)", job, (long long)i, address);
        UNI_TRY(add_address(all, address, err));
        if (!(labels[all->size] = strdup(label)))
            return uni_error_set(err, UNI_ENOMEM, "no memory for TF_CONFIG");
        all->size++;
    }
    return 0;
}

static int read_cluster(cluster *all, const uni_value *config, uni_error *err)
{
    const uni_value *jobs = uni_dict_get(config, "cluster"), *task = uni_dict_get(config, "task");
    const char *type = uni_dict_get_string(task, "type", "");
    if (!uni_value_is_number(uni_dict_get(task, "index")) && type[0])
        return uni_error_set(err, UNI_EINVAL, "TF_CONFIG: the task's index is not a number");
    int64_t index = uni_dict_get_int(task, "index", -1);
    all->rank = -1;
    if (uni_list_size(uni_dict_get(jobs, "ps")) > 0)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "TF_CONFIG has parameter servers: use the strategy parameter_server "
                             "under `unisono run`");
    UNI_TRY(add_job(all, jobs, "chief", type, index, err));
    UNI_TRY(add_job(all, jobs, "worker", type, index, err));
    if (all->rank < 0)
        return uni_error_set(err, UNI_EINVAL,
                             "TF_CONFIG says no task of type chief or worker (its type is \"%s\")",
                             type);
    return all->name.failed ? uni_error_set(err, UNI_ENOMEM, "no memory for TF_CONFIG") : 0;
}

static int open_cluster(uni_comm **out, const cluster *all, const uni_comm_options *options,
                        uni_error *err)
{
    char hash[17];
    uni__hash_bytes(all->name.data, all->name.size, hash);
    int status = uni__comm_open_named(out, hash, all->rank, all->size, all->labels, options, err);
    if (status < 0 && all->size > 1)
        uni_error_prefix(err, "TF_CONFIG");
    return status;
}

/* The cluster points into *config. */
static int read_text(cluster *all, uni_value **config, const char *tf_config, uni_error *err)
{
    int status = uni_json_read(config, tf_config, strlen(tf_config), err);
    if (status < 0) {
        uni_error_prefix(err, "TF_CONFIG is not JSON");
        return status;
    }
    return read_cluster(all, *config, err);
}

static void forget(cluster *all, uni_value *config)
{
    uni__text_free(&all->name);
    for (int r = 0; r < all->size; r++)
        free(all->labels[r]);
    free(all->labels);
    uni_value_free(config);
}

int uni_comm_open_tf_config(uni_comm **out, const char *tf_config, const uni_comm_options *options,
                            uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_comm_options, options, record_dir, err);
    uni_value *config = NULL;
    cluster all = { 0 };
    int status = read_text(&all, &config, tf_config, err);
    if (status == 0)
        status = open_cluster(out, &all, options, err);
    forget(&all, config);
    return status;
}

int uni__comm_read_tf_config(const char *tf_config, int *rank, int *size, uni_error *err)
{
    uni_value *config = NULL;
    cluster all = { 0 };
    int status = read_text(&all, &config, tf_config, err);
    *rank = status == 0 ? all.rank : 0;
    *size = status == 0 ? all.size : 1;
    forget(&all, config);
    return status;
}
