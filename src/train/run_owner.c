/*
 * run_owner.c - whose run it is, and whose process its controller is (run_owner.h).
 *
 * In a shared storage directory anyone can leave a run. Its run.json names a program to start and
 * a process to signal, so neither is believed unless the directory is ours alone. The process is
 * then checked once more, because a pid is given to another process sooner or later: its owner,
 * its start time, and that it has the run's journal open, which a controller has until the end.
 *
 * Thread: the caller's.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/owned.h"
#include "base/process.h"
#include "train/run_owner.h"

#include "train/shared.h"

/* ---- the directory ---- */

/* What resuming reads or writes; a run may not have all of it yet. */
static const struct {
    const char *name;
    bool directory;
} parts[] = {
    { "run.json", false },     { "journal.jsonl", false }, { "results.jsonl", false },
    { "progress.csv", false }, { "tune.jsonl", false },    { "logs", true },
    { "checkpoints", true },   { ".recovery", true },      { UNI__STEPS_NAME, true },
    { ".staging", true },
};

static int check_part(int run, const char *dir, size_t index, uni_error *err)
{
    char *shown = uni__path_join(dir, parts[index].name, NULL);
    if (!shown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    uni_error why = { 0 };
    int fd = parts[index].directory ? uni__open_owned_dir(run, parts[index].name, shown, &why)
                                    : uni__open_owned_file(run, parts[index].name, shown, &why);
    free(shown);
    if (fd >= 0)
        close(fd);
    else if (fd != UNI_ENOTFOUND) {
        if (err)
            *err = why;
        return fd;
    }
    return 0;
}

int uni__run_check_owner(const char *dir, uni_error *err)
{
    char *absolute = uni__path_absolute(dir, err);
    if (!absolute)
        return err && err->code ? err->code : UNI_ENOMEM;
    int run = uni__open_owned_below(absolute, err);
    int status = run < 0 ? run : 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && status == 0; i++)
        status = check_part(run, absolute, i, err);
    if (run >= 0)
        close(run);
    free(absolute);
    return status;
}

int uni__run_make_place(const char *dir, uni_error *err)
{
    int place = uni__make_owned_dir(dir, err);
    if (place < 0)
        return place;
    close(place);
    return 0;
}

/* ---- the process ---- */

uint64_t uni__process_start(pid_t pid)
{
    uni__process process;
    if (!uni__process_look(pid, &process) || process.state == 'Z' || process.state == 'X')
        return 0;
    return process.start_time;
}

/* Whether the process is the effective user's. */
static bool is_ours(pid_t pid)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%ld", (long)pid);
    return stat(path, &info) == 0 && info.st_uid == geteuid();
}

static bool has_open(pid_t pid, const struct stat *wanted)
{
    char path[64];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%ld/fd", (long)pid);
    DIR *entries = opendir(path);
    for (struct dirent *entry; !found && entries && (entry = readdir(entries));) {
        struct stat info;
        found = fstatat(dirfd(entries), entry->d_name, &info, 0) == 0 &&
                info.st_dev == wanted->st_dev && info.st_ino == wanted->st_ino;
    }
    if (entries)
        closedir(entries);
    return found;
}

static bool has_journal(pid_t pid, const char *dir)
{
    struct stat journal;
    char *path = uni__path_join(dir, "journal.jsonl", NULL);
    bool found = path && lstat(path, &journal) == 0 && has_open(pid, &journal);
    free(path);
    return found;
}

int uni__controller_signal(const uni_value *description, const char *dir, const char *id,
                           int number, uni_error *err)
{
    const uni_value *controller = uni_dict_get(description, "controller");
    int64_t said = uni_dict_get_int(controller, "pid", 0);
    int64_t ticks = uni_dict_get_int(controller, "start_ticks", 0);
    pid_t pid = said > 0 && said <= INT32_MAX ? (pid_t)said : 0;
    if (!pid || ticks <= 0)
        return uni_error_set(err, UNI_EFORMAT,
                             "%s/run.json does not name the controller's process and its start "
                             "time: end it yourself",
                             dir);
    /* The descriptor first: what is checked below is this process, or it is gone and the signal
     * reaches no process. */
    int handle = (int)syscall(SYS_pidfd_open, pid, 0);
    if (handle < 0 && errno != ESRCH)
        return uni_error_set_errno(err, errno, "opening the controller of %s (pid %ld)", id,
                                   (long)pid);
    int status = 0;
    if (handle < 0 || uni__process_start(pid) != (uint64_t)ticks)
        status = uni_error_set(err, UNI_ESTATE,
                               "the controller of %s (pid %ld) is gone already: "
                               "`unisono run --resume %s` goes on",
                               id, (long)pid, id);
    else if (!is_ours(pid))
        status = uni_error_set(err, UNI_EPERMISSION,
                               "%s: the process %ld belongs to another user; it is not signalled",
                               id, (long)pid);
    else if (!has_journal(pid, dir))
        status = uni_error_set(err, UNI_EPERMISSION,
                               "%s: the process %ld is not its controller (it does not have the "
                               "journal of the run open); it is not signalled",
                               id, (long)pid);
    else if (syscall(SYS_pidfd_send_signal, handle, number, NULL, 0) < 0)
        status = uni_error_set_errno(err, errno, "asking the controller of %s (pid %ld) to stop",
                                     id, (long)pid);
    if (handle >= 0)
        close(handle);
    return status;
}
