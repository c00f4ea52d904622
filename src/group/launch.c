/*
 * launch.c - finding and starting unisono-agent.
 *
 * posix_spawn, because the caller's process may be large and full of threads. The first process of
 * the agent forks and ends at once, so that the caller gets no lasting child. With a template
 * (template.c) the agent is forked from it; when that fails, it is started as always.
 */
#include "group/launch.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/owned.h"
#include "group/template.h"

#define TEMPLATE_MS 5000

extern char **environ;

#ifndef UNI_LIBEXEC_DIR
#define UNI_LIBEXEC_DIR "/usr/libexec/unisono"
#endif

/* The folder of the shared object (or program) that this code is in. */
static int own_folder(char *out, size_t size)
{
    Dl_info info;
    char real[PATH_MAX];
    if (!dladdr((void *)&uni__launch_agent, &info) || !info.dli_fname)
        return -1;
    /* A statically linked program may be known by a bare name. */
    if (!realpath(strchr(info.dli_fname, '/') ? info.dli_fname : "/proc/self/exe", real))
        return -1;
    char *slash = strrchr(real, '/');
    if (!slash)
        return -1;
    *slash = '\0';
    return snprintf(out, size, "%s", real) < (int)size ? 0 : -1;
}

/* Around a copy in /tmp, other users may have put anything. */
static bool is_ours(const char *path, const char *folder)
{
    bool ours = uni__may_run(path, folder);
    if (!ours)
        uni__warn("%s is not started: it belongs to another user, or others can write to it", path);
    return ours;
}

int uni__find_helper(const char *name, const char *variable, char *out, size_t size, uni_error *err)
{
    /* Beside the library, in libexec of the same prefix (with and without a multiarch folder), in a
     * build tree, and in bin when the library is in a Python's site-packages. */
    static const char *const below[] = { ".",
                                         "../libexec/unisono",
                                         "../../libexec/unisono",
                                         "../group",
                                         "../src/group",
                                         "../train/remote",
                                         "../src/train/remote",
                                         "../../group",
                                         "../../../../bin" };
    char folder[PATH_MAX];
    const char *asked = getenv(variable);
    if (asked && asked[0]) {
        snprintf(out, size, "%s", asked);
        return access(out, X_OK) == 0
                   ? 0
                   : uni_error_set_errno(err, errno, "%s names %s, which cannot be executed",
                                         variable, asked);
    }
    if (own_folder(folder, sizeof folder) == 0)
        for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
            char path[PATH_MAX + 64];
            if (snprintf(path, sizeof path, "%s/%s/%s", folder, below[i], name) <
                    (int)sizeof path &&
                access(path, X_OK) == 0 && is_ours(path, folder))
                return snprintf(out, size, "%s", path) < (int)size
                           ? 0
                           : uni_error_set(err, UNI_ELIMIT, "the path of %s is too long", name);
        }
    snprintf(out, size, "%s/%s", UNI_LIBEXEC_DIR, name);
    if (access(out, X_OK) == 0)
        return 0;
    return uni_error_set(
        err, UNI_ENOTFOUND,
        "the program %s was found neither beside the library nor in %s: install unisono "
        "completely, or set %s to its path",
        name, UNI_LIBEXEC_DIR, variable);
}

static int spawn_agent(const char *path, int channel, int alive, uni_error *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t pid = -1;
    char *arguments[] = { "unisono-agent", "3", "4", NULL };
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, 0, 1);
    posix_spawn_file_actions_adddup2(&actions, 0, 2);
    posix_spawn_file_actions_adddup2(&actions, channel, 3);
    posix_spawn_file_actions_adddup2(&actions, alive, 4);
    posix_spawn_file_actions_addclosefrom_np(&actions, 5);
    int error = posix_spawn(&pid, path, &actions, &attributes, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error)
        return uni_error_set_errno(err, error, "cannot start %s", path);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

/* From a template: its first frame says that it is there. */
static int fork_agent(int template_fd, int ours, int *channel, int *alive, uni_error *err)
{
    struct pollfd end = { .fd = ours, .events = POLLIN };
    char first;
    UNI_TRY(uni__template_ask(template_fd, *channel, *alive, err));
    /* Ours would hold it open when the template dies with the request. */
    close(*channel);
    *channel = -1;
    int ready;
    while ((ready = poll(&end, 1, TEMPLATE_MS)) < 0 && errno == EINTR)
        ;
    if (ready <= 0 || recv(ours, &first, 1, MSG_PEEK | MSG_DONTWAIT) != 1)
        return uni_error_set(err, UNI_EIO, "the template of workers does not answer");
    return 0;
}

static void close_ends(int channel, int alive)
{
    if (channel >= 0)
        close(channel);
    if (alive >= 0)
        close(alive);
}

/* A new agent: the program at path, or without one forked from the template. */
static int connect_agent(int template_fd, const char *path, int *channel, int *alive,
                         uni_error *err)
{
    int pair[2] = { -1, -1 }, pipe_ends[2] = { -1, -1 }, status;
    *channel = *alive = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
        pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        status = uni_error_set_errno(err, errno, "cannot make the connection to the agent");
        goto fail;
    }
    /* Kept clear of 3 and 4, which the agent gets its own ends at. */
    int theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, 10),
        pulse = fcntl(pipe_ends[1], F_DUPFD_CLOEXEC, 10);
    close(pair[1]);
    close(pipe_ends[1]);
    pair[1] = theirs;
    pipe_ends[1] = pulse;
    if (path)
        UNI_TRY_GOTO(spawn_agent(path, pair[1], pipe_ends[1], err), fail);
    else
        UNI_TRY_GOTO(fork_agent(template_fd, pair[0], &pair[1], &pipe_ends[1], err), fail);
    close_ends(pair[1], pipe_ends[1]);
    *channel = pair[0];
    *alive = pipe_ends[0];
    return 0;
fail:
    for (int i = 0; i < 2; i++)
        close_ends(pair[i], pipe_ends[i]);
    return status;
}

int uni__launch_agent(int template_fd, int *channel, int *alive, uni_error *err)
{
    uni_error refused = { 0 };
    if (template_fd >= 0 && connect_agent(template_fd, NULL, channel, alive, &refused) == 0)
        return 0;
    if (template_fd >= 0)
        uni__warn("%s; workers are new processes", refused.message);
    char path[PATH_MAX + 64];
    UNI_TRY(uni__find_helper("unisono-agent", "UNISONO_AGENT", path, sizeof path, err));
    return connect_agent(-1, path, channel, alive, err);
}
