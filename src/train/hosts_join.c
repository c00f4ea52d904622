/*
 * hosts_join.c - the ranks above 0 of a foreign mpirun or srun (`mpirun -n 4 unisono run -- ...`):
 * they become agents of the run that rank 0 controls. Where it listens they read from a file in the
 * storage, and they announce their keys in files beside it. Main thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "group/launch.h"
#include "train/hosts_internal.h"
#include "train/hosts_join.h"

#include "train/shared.h"

#define JOIN_SECONDS 60

int uni__hosts_foreign_rank(void)
{
    uni__launched launched;
    return uni__launched_look(&launched) && launched.size > 1 ? launched.rank : -1;
}

bool uni__hosts_in_mpirun(void)
{
    uni__launched launched;
    return uni__launched_look(&launched) && launched.size > 1 &&
           strcmp(launched.launcher, "mpi") == 0;
}

/* A user that could write it could send us to a controller of its own. */
static int read_join(const char *path, char join[UNI__JOIN_MAX], uni_error *err)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return UNI_ENOTFOUND;
    if (fd < 0 || fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
        (info.st_mode & 077)) {
        if (fd >= 0)
            close(fd);
        return uni_error_set(err, UNI_EPERMISSION,
                             "%s belongs to another user, is not a regular file, or can be read "
                             "by others",
                             path);
    }
    ssize_t size = read(fd, join, UNI__JOIN_MAX - 1);
    close(fd);
    join[size > 0 ? size : 0] = '\0';
    char *end = strchr(join, '\n');
    if (!end)
        return uni_error_set(err, UNI_EFORMAT, "%s is truncated", path);
    *end = '\0';
    return 0;
}

int uni__hosts_join_foreign(const char *storage_path, uni_error *err)
{
    uni__launched launched;
    char agent[4200], path[4200], mine[4300], join[UNI__JOIN_MAX], *storage = NULL;
    uint64_t deadline = uni__monotonic_ns() + JOIN_SECONDS * 1000000000ull;
    if (!uni__launched_look(&launched))
        return uni_error_set(err, UNI_ESTATE, "neither mpirun nor srun started this process");
    UNI_TRY(uni__find_helper("unisono-host", "UNISONO_HOST_AGENT", agent, sizeof agent, err));
    UNI_TRY(uni__run_storage(&storage, storage_path, err));
    snprintf(path, sizeof path, "%s/.join_%s", storage, launched.job);
    free(storage);
    int status;
    while ((status = read_join(path, join, err)) == UNI_ENOTFOUND) {
        if (uni__monotonic_ns() > deadline)
            return uni_error_set(err, UNI_ETIMEOUT,
                                 "rank 0 of this mpirun or srun has not written %s within %d s: "
                                 "does this host see the same storage (--storage)?",
                                 path, JOIN_SECONDS);
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
    UNI_TRY(status);
    snprintf(mine, sizeof mine, "%s.%d", path, launched.rank);
    setenv(UNI__JOIN_VARIABLE, join, 1);
    setenv(UNI__ANNOUNCE_VARIABLE, mine, 1);
    execl(agent, "unisono-host", (char *)NULL);
    return uni_error_set_errno(err, errno, "cannot execute %s", agent);
}
