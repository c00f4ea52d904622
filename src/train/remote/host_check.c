/*
 * host_check.c - `unisono check --hosts`: the agent is started on a host as for a run, by the same
 * launcher, and only says what it finds there: one line of JSON.
 *
 * UNISONO_JOIN is then "check:PORT:TOKEN_PATH:ADDRESS[,ADDRESS...]": where it tries to connect to,
 * and a file that is in the storage of the controller's machine.
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <unisono/version.h>

#include "base/clock.h"
#include "base/plugin.h"
#include "comm/hosts/carrier.h"
#include "comm/ucx/plugin.h"
#include "group/host.h"
#include "train/remote/host_internal.h"

#define CONNECT_MS 3000

static bool reaches(const char *address, const char *port)
{
    struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM },
                    *found = NULL;
    if (getaddrinfo(address, port, &hints, &found) != 0)
        return false;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0;
    socklen_t size = sizeof error;
    struct pollfd waiting = { .fd = fd, .events = POLLOUT };
    bool fine = fd >= 0 && (connect(fd, found->ai_addr, found->ai_addrlen) == 0 ||
                            (errno == EINPROGRESS && poll(&waiting, 1, CONNECT_MS) == 1 &&
                             getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && !error));
    if (fd >= 0)
        close(fd);
    freeaddrinfo(found);
    return fine;
}

/* The first of the controller's addresses that answers; NULL: none. */
static const char *reached(char *addresses, const char *port)
{
    char *rest = NULL;
    for (char *one = strtok_r(addresses, ",", &rest); one; one = strtok_r(NULL, ",", &rest))
        if (reaches(one, port))
            return one;
    return NULL;
}

static bool has_plugin(const char *file, const char *symbol, int version)
{
    const uni__plugin plugin = { .file = file,
                                 .symbol = symbol,
                                 .version = version,
                                 .built = "src/comm",
                                 .purpose = "",
                                 .packages = "",
                                 .settings = UNI__UCX_SETTINGS };
    const void *table = NULL;
    return uni__plugin_open(&table, &plugin, NULL) == 0;
}

bool host_has_ucx(void)
{
    return has_plugin(UNI__UCX_PLUGIN_FILE, UNI__UCX_PLUGIN_SYMBOL, UNI__UCX_PLUGIN_VERSION);
}

static uni_value *plugins(void)
{
    static const char *const families[] = { "openmpi", "mpich" };
    uni_value *found = uni_value_list();
    int status = 0;
    for (size_t i = 0; i < sizeof families / sizeof families[0] && status == 0; i++) {
        char file[64];
        snprintf(file, sizeof file, "libunisono-mpi-%s.so", families[i]);
        if (has_plugin(file, UNI__MPI_PLUGIN_SYMBOL, UNI__CARRIER_VERSION))
            status = uni_list_take(found, uni_value_string(families[i]));
    }
    if (status == 0 && host_has_ucx())
        (void)!uni_list_take(found, uni_value_string("ucx"));
    return found;
}

int host_check(const char *text)
{
    char *copy = strdup(text + strlen("check:")), *rest = copy, here[256] = "?", *json = NULL;
    const char *port = strsep(&rest, ":"), *token = rest ? strsep(&rest, ":") : NULL;
    const char *base = getenv("TMPDIR");
    struct statvfs room;
    uni__host host;
    if (!copy || !token || !rest) {
        free(copy);
        return 64;
    }
    base = base && base[0] ? base : "/tmp";
    gethostname(here, sizeof here - 1);
    uni__host_look(&host);
    double bytes = statvfs(base, &room) == 0 ? (double)room.f_bavail * (double)room.f_frsize : -1;
    bool shares = access(token, R_OK) == 0;
    const char *address = reached(rest, port);
    uni_value *answer = UNI__DICT(
        { "name", uni_value_string(here) }, { "version", uni_value_string(UNI_VERSION) },
        { "cpus", uni_value_float(host.cpus) }, { "plugins", plugins() },
        { "temporary", uni_value_string(base) }, { "temporary_free", uni_value_float(bytes) },
        { "shares_storage", uni_value_bool(shares) },
        { "reaches", address ? uni_value_string(address) : uni_value_null() },
        { "time", uni_value_float(uni__wall_seconds()) });
    int status = answer ? uni_json_write(&json, NULL, answer, 0, NULL) : UNI_ENOMEM;
    if (status == 0)
        printf("unisono-check %s\n", json);
    fflush(stdout);
    uni_value_free(answer);
    free(json);
    free(copy);
    return status == 0 ? 0 : 70;
}
