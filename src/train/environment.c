/*
 * environment.c - what each backend's workers find in their environment, and the ports that it
 * names.
 *
 * A port is held by a bound socket for the whole run, so that no other job gets it: with
 * SO_REUSEPORT for TensorFlow (whose gRPC server joins in with TF_GRPC_REUSE_PORT=1), with
 * SO_REUSEADDR and never listening for PyTorch (whose store may then still listen).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"
#include "train/hosts_internal.h"

extern char **environ;

static int make_room(uni__ports *ports, int count, uni_error *err)
{
    ports->fds = calloc((size_t)count + 1, sizeof *ports->fds);
    ports->numbers = calloc((size_t)count + 1, sizeof *ports->numbers);
    if (!ports->fds || !ports->numbers)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d ports", count);
    return 0;
}

int uni__ports_plan(uni__ports *ports, int count, uni_error *err)
{
    UNI_TRY(make_room(ports, count, err));
    while (ports->count < count)
        ports->fds[ports->count++] = -1;
    return 0;
}

int uni__ports_hold(uni__ports *ports, int count, bool reuse_port, uni_error *err)
{
    UNI_TRY(make_room(ports, count, err));
    for (int i = 0; i < count; i++) {
        struct sockaddr_in address = { .sin_family = AF_INET,
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t length = sizeof address;
        int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 ||
            setsockopt(fd, SOL_SOCKET, reuse_port ? SO_REUSEPORT : SO_REUSEADDR, &on, sizeof on) <
                0 ||
            bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
            getsockname(fd, (struct sockaddr *)&address, &length) < 0) {
            int saved = errno;
            if (fd >= 0)
                close(fd);
            return uni_error_set_errno(err, saved, "cannot hold a port on the loopback interface");
        }
        ports->fds[ports->count] = fd;
        ports->numbers[ports->count++] = ntohs(address.sin_port);
    }
    return 0;
}

void uni__ports_release(uni__ports *ports)
{
    for (int i = 0; i < ports->count; i++)
        if (ports->fds[i] >= 0)
            close(ports->fds[i]);
    free(ports->fds);
    free(ports->numbers);
    memset(ports, 0, sizeof *ports);
}

/* ---- a list of NAME=value in which a later value replaces an earlier one ---- */

typedef struct variables {
    uni_value *dict; /* name -> value, in order */
    bool failed;
} variables;

static void set(variables *to, const char *name, const char *format, ...) UNI_PRINTF(3, 4);
static void set(variables *to, const char *name, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0 || uni_dict_take(to->dict, name, uni_value_string(text)) < 0)
        to->failed = true;
    if (length >= 0)
        free(text);
}

static void set_pair(variables *to, const char *pair)
{
    const char *equals = strchr(pair, '=');
    char *name = equals ? strndup(pair, (size_t)(equals - pair)) : NULL;
    if (name && name[0])
        set(to, name, "%s", equals + 1);
    free(name);
}

static bool user_has(const uni_trainer *trainer, const char *name)
{
    size_t length = strlen(name);
    if (getenv(name))
        return true;
    for (size_t i = 0; i < uni_list_size(trainer->extra_environment); i++) {
        const char *pair = uni_value_as_string(uni_list_get(trainer->extra_environment, i), "");
        if (strncmp(pair, name, length) == 0 && pair[length] == '=')
            return true;
    }
    return false;
}

static void set_ranks(variables *to, const uni__world *world, int rank, const uni__view *view)
{
    static const char *const prefixes[] = { "UNISONO_", "" };
    for (int i = 0; i < 2; i++) {
        char name[64];
        const uni__rank_place *place = &view->place;
        const struct {
            const char *name;
            int value;
        } numbers[] = {
            { "RANK", rank },
            { "WORLD_SIZE", world->size },
            { "LOCAL_RANK", view->remote ? place->local_rank : rank },
            { "LOCAL_WORLD_SIZE", view->remote ? place->local_size : world->size },
            { "NODE_RANK", place->node },
        };
        for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++) {
            snprintf(name, sizeof name, "%s%s", prefixes[i], numbers[n].name);
            set(to, name, "%d", numbers[n].value);
        }
    }
    int index;
    set(to, "UNISONO_ROLE", "%s", uni__role_of(&world->trainer->roles, rank, &index));
    set(to, "UNISONO_ROLE_INDEX", "%d", index);
    set(to, "UNISONO_ATTEMPT", "%d", world->attempt);
    if (world->dir)
        set(to, "UNISONO_RUN_DIR", "%s", view->run_dir);
    if (world->staging_dir)
        set(to, "UNISONO_STAGING", "%s", view->staging_dir);
    if (view->checkpoint[0])
        set(to, "UNISONO_CHECKPOINT", "%s", view->checkpoint);
}

bool uni__config_fits(const uni_value *config)
{
    char *json = NULL;
    size_t size = 0;
    bool fits =
        uni_json_write(&json, &size, config, 0, NULL) == 0 && size < UNI__CONFIG_VARIABLE_MAX;
    free(json);
    return fits;
}

/* For a program, which may not know the library. Workers that run functions are warm: they get the
 * config of each run by their session. */
static void set_config(variables *to, const uni__world *world)
{
    char *json = NULL;
    size_t size = 0;
    if (!world->config)
        return;
    if (uni_json_write(&json, &size, world->config, 0, NULL) < 0)
        to->failed = true;
    else if (size < UNI__CONFIG_VARIABLE_MAX)
        set(to, "UNISONO_CONFIG", "%s", json);
    free(json);
}

/* Where a rank's framework listens: on its own host, at a port that is held for it. Without one:
 * false. */
static bool address_of(const uni__world *world, int rank, const char **address, int *port)
{
    uni__rank_place place;
    if (world->group && uni__group_place(world->group, rank, &place)) {
        *address = place.address;
        *port = place.port;
        return place.port > 0;
    }
    *address = world->trainer->host.address;
    bool held = world->ports && rank < world->ports->count;
    *port = held ? world->ports->numbers[rank] : 0;
    return held;
}

/* The addresses of one role, when there are any; after others a comma comes first. */
static void add_role(uni__text *text, const uni__world *world, const char *role, bool *others)
{
    int found = 0, index, port;
    const char *address;
    for (int i = 0; i < world->size; i++)
        if (address_of(world, i, &address, &port) &&
            strcmp(uni__role_of(&world->trainer->roles, i, &index), role) == 0) {
            if (found == 0)
                uni__text_add_format(text, "%s\"%s\": [", *others ? ", " : "", role);
            uni__text_add_format(text, "%s\"%s:%d\"", found++ ? ", " : "", address, port);
        }
    if (found > 0)
        uni__text_add_string(text, "]");
    *others |= found > 0;
}

static void set_tf_config(variables *to, const uni__world *world, int rank)
{
    uni__text text = { 0 };
    int index;
    const char *role = uni__role_of(&world->trainer->roles, rank, &index);
    uni__text_add_string(&text, "{\"cluster\": {");
    bool others = false;
    add_role(&text, world, "chief", &others);
    add_role(&text, world, "worker", &others);
    add_role(&text, world, "ps", &others);
    /* An evaluator is not part of the training cluster: no other rank may wait for it. */
    if (strcmp(role, "evaluator") == 0)
        add_role(&text, world, "evaluator", &others);
    uni__text_add_format(&text, "}, \"task\": {\"type\": \"%s\", \"index\": %d}}", role, index);
    if (text.failed)
        to->failed = true;
    else
        set(to, "TF_CONFIG", "%s", text.data);
    uni__text_free(&text);
    set(to, "TF_GRPC_REUSE_PORT", "1");
}

static void set_horovod(variables *to, const uni__world *world, int rank, const uni__view *view)
{
    const uni__rank_place *place = &view->place;
    set(to, "HOROVOD_RANK", "%d", rank);
    set(to, "HOROVOD_SIZE", "%d", world->size);
    set(to, "HOROVOD_LOCAL_RANK", "%d", view->remote ? place->local_rank : rank);
    set(to, "HOROVOD_LOCAL_SIZE", "%d", view->remote ? place->local_size : world->size);
    set(to, "HOROVOD_CROSS_RANK", "%d", place->node);
    set(to, "HOROVOD_CROSS_SIZE", "%d", view->remote ? place->num_nodes : 1);
    set(to, "HOROVOD_HOSTNAME", "%s", view->remote ? place->host : world->trainer->host.hostname);
}

static void set_backend(variables *to, const uni__world *world, int rank, const uni__view *view)
{
    const char *backend = world->trainer->options.backend;
    if (strcmp(backend, "tensorflow") == 0) {
        set_tf_config(to, world, rank);
    } else if (strcmp(backend, "torch") == 0) {
        const char *address;
        int port;
        bool held = address_of(world, 0, &address, &port);
        set(to, "MASTER_ADDR", "%s", address);
        if (held)
            set(to, "MASTER_PORT", "%d", port);
    } else if (strcmp(backend, "horovod") == 0) {
        set_horovod(to, world, rank, view);
    }
}

/* The rank's own devices out of "0,1,2,3". */
static void set_gpus(variables *to, const uni_trainer *trainer, int rank)
{
    int each = trainer->options.gpus_per_worker, position = 0;
    char mine[256] = "";
    char *copy = strdup(trainer->host.gpu_ids), *rest = NULL;
    for (char *id = copy ? strtok_r(copy, ",", &rest) : NULL; id;
         id = strtok_r(NULL, ",", &rest), position++)
        if (position / each == rank)
            snprintf(mine + strlen(mine), sizeof mine - strlen(mine), "%s%s", mine[0] ? "," : "",
                     id);
    free(copy);
    set(to, "CUDA_VISIBLE_DEVICES", "%s", mine);
}

static void set_threads(variables *to, const uni_trainer *trainer, const uni__view *view)
{
    int local = view->remote ? view->place.local_size : trainer->options.num_workers;
    double cpus = view->remote ? view->place.cpus : trainer->host.cpus;
    double each =
        view->remote && !trainer->options.cpus_per_worker ? cpus / local : trainer->cpus_each;
    /* By itself UCX handles SIGSEGV and the like, in place of the program. */
    if (uni__hosts_use_ucx(trainer) && !user_has(trainer, "UCX_HANDLE_ERRORS"))
        set(to, "UCX_HANDLE_ERRORS", "none");
    if (!user_has(trainer, "OMP_NUM_THREADS"))
        set(to, "OMP_NUM_THREADS", "%d", each >= 1 ? (int)floor(each) : 1);
    if (!user_has(trainer, "OMP_WAIT_POLICY") && local > cpus)
        set(to, "OMP_WAIT_POLICY", "passive");
    if (!user_has(trainer, "PYTHONUNBUFFERED"))
        set(to, "PYTHONUNBUFFERED", "1");
}

uni_value *uni__world_environment(const uni__world *world, int rank)
{
    const uni_trainer *trainer = world->trainer;
    variables all = { .dict = uni_value_dict() };
    for (char **pair = environ; *pair; pair++)
        set_pair(&all, *pair);
    /* What a surrounding worker was told is not true for ours. */
    static const char *const not_ours[] = { "UNISONO_SESSION",    "UNISONO_REPORT_FD",
                                            "UNISONO_CHECKPOINT", "UNISONO_CONFIG",
                                            "UNISONO_RUN_DIR",    "UNISONO_STAGING",
                                            "TF_CONFIG" };
    for (size_t i = 0; i < sizeof not_ours / sizeof not_ours[0]; i++)
        uni_dict_remove(all.dict, not_ours[i]);
    uni__view view;
    uni__world_view(world, rank, &view);
    set_ranks(&all, world, rank, &view);
    set_config(&all, world);
    set_backend(&all, world, rank, &view);
    set_threads(&all, trainer, &view);
    if (trainer->options.use_gpu)
        set_gpus(&all, trainer, rank + world->share);
    for (size_t i = 0; i < uni_list_size(trainer->extra_environment); i++)
        set_pair(&all, uni_value_as_string(uni_list_get(trainer->extra_environment, i), ""));
    uni_value *list = uni_value_list();
    for (size_t i = 0; i < uni_dict_size(all.dict); i++) {
        char *pair = NULL;
        if (asprintf(&pair, "%s=%s", uni_dict_key_at(all.dict, i),
                     uni_value_as_string(uni_dict_value_at(all.dict, i), "")) < 0 ||
            uni_list_take(list, uni_value_string(pair)) < 0)
            all.failed = true;
        free(pair);
    }
    uni_value_free(all.dict);
    if (!all.failed)
        return list;
    uni_value_free(list);
    return NULL;
}
