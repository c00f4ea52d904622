/*
 * hosts_program.c - is it the same program on all hosts? The launch names the files that a worker
 * is started with: the executable, and words of its command line that are files (a script). Each
 * host hashes its own; contents that differ are an error before anything runs, because the ranks
 * would train something that is not the user's program. Controller thread.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "train/hosts_internal.h"

#define MAX_FILES 16
#define ALLOWED "UNISONO_DIFFERENT_PROGRAMS"

/* An interpreter that came with the system may be of another build there; scripts may not. */
static bool is_systems(const char *path)
{
    static const char *const places[] = { "/usr/", "/bin/", "/sbin/", "/lib", "/opt/" };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (strncmp(path, places[i], strlen(places[i])) == 0)
            return strncmp(path, "/usr/local/", 11) != 0;
    return false;
}

static int add_file(uni_value *files, const char *word)
{
    char path[PATH_MAX];
    struct stat info;
    if (uni_list_size(files) == MAX_FILES || !realpath(word, path) || is_systems(path) ||
        stat(path, &info) < 0 || !S_ISREG(info.st_mode))
        return 0;
    return uni_list_take(files, uni_value_string(path));
}

uni_value *uni__hosts_program_files(const uni__run *run)
{
    const uni_value *argv = run->request.program ? run->request.program : run->trainer->worker_argv;
    const char *exe = run->request.program ? run->request.exe : run->trainer->worker_exe;
    uni_value *files = uni_value_list();
    int status = exe ? add_file(files, exe) : 0;
    for (size_t i = 1; i < uni_list_size(argv) && status == 0; i++)
        status = add_file(files, uni_value_as_string(uni_list_get(argv, i), ""));
    if (status == 0)
        return files;
    uni_value_free(files);
    return NULL;
}

static const char *hash_at(const uni_value *hashes, size_t index)
{
    return uni_value_as_string(uni_list_get(hashes, index), "");
}

int uni__hosts_check_program(const uni__run *run, uni_error *err)
{
    uni__rank_place first, place;
    uni_value *files = uni__hosts_program_files(run);
    int status = 0;
    if (getenv(ALLOWED) || !uni__group_place(run->group, 0, &first)) {
        uni_value_free(files);
        return 0;
    }
    for (int r = 1; r < run->num_workers && status == 0; r++) {
        if (!uni__group_place(run->group, r, &place) || place.local_rank != 0)
            continue;
        for (size_t i = 0; i < uni_list_size(files) && status == 0; i++) {
            const char *here = hash_at(first.program, i), *there = hash_at(place.program, i);
            if (here[0] && there[0] && strcmp(here, there) != 0)
                status = uni_error_set(
                    err, UNI_EMISMATCH,
                    "%.300s is not the same file on host %.100s as on host %.100s: copy it to all "
                    "hosts (or set " ALLOWED "=1 when they are meant to differ)",
                    uni_value_as_string(uni_list_get(files, i), "?"), place.host, first.host);
        }
    }
    uni_value_free(files);
    return status;
}
