/*
 * run_find.c - which run is meant: where runs are stored, the list of them, and a run by its name,
 * its path or as the newest one. A name that is not there is answered with the nearest one that is.
 * What a run's files say is run_reader.c's.
 *
 * Thread: the caller's.
 */
#include <dirent.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/shared.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/process.h"
#include "base/safe_text.h"
#include "train/run_reader.h"

/* ---- names and places ---- */

static int home_directory(char **out, uni_error *err)
{
    const char *home = getenv("HOME");
    if (!home || home[0] != '/') {
        const struct passwd *user = getpwuid(getuid());
        home = user ? user->pw_dir : NULL;
    }
    if (!home)
        return uni_error_set(
            err, UNI_ENOTFOUND,
            "no home directory is known for this user: give the storage path, or set "
            "UNISONO_RESULTS");
    *out = uni__path_join(home, "unisono_results", NULL);
    return *out ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
}

/* s3://bucket; and s3:/bucket, which is what path libraries make of it. A directory may be called
 * "a:b". */
static bool has_scheme(const char *path)
{
    size_t letters = strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789+.-");
    return letters > 0 && path[letters] == ':' && path[letters + 1] == '/';
}

int uni__run_storage(char **out, const char *storage, uni_error *err)
{
    *out = NULL;
    if (storage && !storage[0])
        return uni_error_set(err, UNI_EINVAL,
                             "the storage path is empty: give a directory, or leave it out");
    if (!storage)
        storage = getenv("UNISONO_RESULTS");
    if (!storage || !storage[0])
        return home_directory(out, err);
    if (has_scheme(storage)) {
        if (strncmp(storage, "file://", 7) != 0 || storage[7] != '/')
            return uni_error_set(err, UNI_EUNSUPPORTED,
                                 "storage path %s: only directories of this machine (a path or "
                                 "file:///path) are supported; mount it and give the path",
                                 storage);
        storage += 7;
    }
    *out = uni__path_absolute(storage, err);
    return *out ? 0 : (err && err->code ? err->code : UNI_ENOMEM);
}

int uni__run_check_name(const char *name, uni_error *err)
{
    char escape[UNI__ESCAPE_SIZE] = "";
    size_t length = strlen(name);
    for (size_t at = 0; at < length && !escape[0];)
        at += uni__safe_step(name + at, length - at, "", escape);
    if (escape[0])
        return uni_error_set(
            err, UNI_EINVAL,
            "the name has a control character or one that is not UTF-8 (%s): it is "
            "shown in terminals and listed one a line, leave it out",
            escape);
    if (!name[0] || strchr(name, '/') || name[0] == '.')
        return uni_error_set(
            err, UNI_EINVAL,
            "the name \"%s\" cannot be a directory: leave out slashes and a leading dot", name);
    if (name[0] == '-')
        return uni_error_set(err, UNI_EINVAL,
                             "the name \"%s\" begins with a dash: commands would take it for an "
                             "option; begin it with a letter",
                             name);
    return 0;
}

/* 7 for "run_007", 0 for anything else. */
static long run_number(const char *name)
{
    if (strncmp(name, "run_", 4) != 0 || name[4] < '0' || name[4] > '9')
        return 0;
    char *end = NULL;
    long number = strtol(name + 4, &end, 10);
    return *end == '\0' && number > 0 && number < 1000000000 ? number : 0;
}

static bool is_run_dir(const char *dir)
{
    char *file = uni__path_join(dir, "run.json", NULL);
    bool found = file && uni__path_exists(file);
    free(file);
    return found;
}

/* The run_NNN below dir with the highest number, as a malloc'ed path; NULL when there is none. */
static char *newest_below(const char *dir)
{
    DIR *entries = opendir(dir);
    if (!entries)
        return NULL;
    char best[256] = "";
    long best_number = 0;
    for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        long number = run_number(entry->d_name);
        if (number <= best_number)
            continue;
        char *path = uni__path_join(dir, entry->d_name, NULL);
        if (path && is_run_dir(path)) {
            best_number = number;
            snprintf(best, sizeof best, "%s", entry->d_name);
        }
        free(path);
    }
    closedir(entries);
    return best_number ? uni__path_join(dir, best, NULL) : NULL;
}

/* dir itself when it is a run, otherwise the newest run directly below. Takes dir. */
static char *run_at(char *dir)
{
    if (!dir || is_run_dir(dir))
        return dir;
    char *newest = newest_below(dir);
    free(dir);
    return newest;
}

/* ---- the nearest name, for messages ---- */

static void nearest_name(const char *storage, const char *name, char *out, size_t size)
{
    out[0] = '\0';
    char wanted[256];
    snprintf(wanted, sizeof wanted, "%s", name);
    char *slash = strchr(wanted, '/');
    if (slash)
        *slash = '\0';
    size_t best = strlen(wanted) / 3 + 2;
    DIR *entries = opendir(storage);
    for (struct dirent *entry = entries ? readdir(entries) : NULL; entry;
         entry = readdir(entries)) {
        if (entry->d_name[0] == '.')
            continue;
        size_t distance = uni__edit_distance(wanted, entry->d_name);
        if (distance > 0 && distance < best) { /* its own name: a directory without a run */
            best = distance;
            snprintf(out, size, "%s", entry->d_name);
        }
    }
    if (entries)
        closedir(entries);
}

static int not_found(const char *name, const char *storage, uni_error *err)
{
    char nearest[256];
    if (strchr(name, '/') && access(name, R_OK | X_OK) == 0)
        return uni_error_set(err, UNI_ENOTFOUND,
                             "%s is not a run: there is neither a run.json nor a run_001 in it",
                             name);
    if (strchr(name, '/') && errno == EACCES)
        return uni_error_set_errno(err, EACCES, "cannot look for a run in %s", name);
    nearest_name(storage, name, nearest, sizeof nearest);
    if (nearest[0])
        return uni_error_set(
            err, UNI_ENOTFOUND,
            "there is no run \"%s\" in %s. Did you mean %s? (`unisono ls` lists them)", name,
            storage, nearest);
    return uni_error_set(err, UNI_ENOTFOUND,
                         "there is no run \"%s\" in %s: `unisono ls` lists the runs, --storage or "
                         "UNISONO_RESULTS says where to look",
                         name, storage);
}

/* ---- listing ---- */

typedef struct run_list {
    uni_run **items;
    size_t count, capacity;
} run_list;

static int list_add(run_list *list, uni_run *run, uni_error *err)
{
    uni_run **items = uni__grown(list->items, list->count, &list->capacity, sizeof *items);
    if (!items)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %zu runs", list->count + 1);
    list->items = items;
    list->items[list->count++] = run;
    return 0;
}

static int list_experiment(run_list *list, const char *dir, uni_error *err)
{
    DIR *entries = opendir(dir);
    if (!entries)
        return 0; /* a file, or another program's directory */
    int status = 0;
    for (struct dirent *entry = readdir(entries); entry && status == 0; entry = readdir(entries)) {
        if (!run_number(entry->d_name))
            continue;
        char *path = uni__path_join(dir, entry->d_name, NULL);
        if (!path || !is_run_dir(path)) {
            free(path);
            continue;
        }
        uni_run *run = NULL;
        uni_error reason = { 0 };
        if (uni__run_open_dir(&run, path, &reason) < 0) {
            uni__warn("%s/%s is passed over: %s", dir, entry->d_name, reason.message);
            continue;
        }
        status = list_add(list, run, err);
        if (status < 0)
            uni_run_close(run);
    }
    closedir(entries);
    return status;
}

static int newest_first(const void *a, const void *b)
{
    const uni_run *left = *(uni_run *const *)a, *right = *(uni_run *const *)b;
    double left_time = uni_dict_get_float(uni_run_info_of(left)->description, "created", 0);
    double right_time = uni_dict_get_float(uni_run_info_of(right)->description, "created", 0);
    if (left_time != right_time)
        return left_time < right_time ? 1 : -1;
    return strcmp(uni_run_info_of(right)->id, uni_run_info_of(left)->id);
}

int uni_run_list(const char *storage, uni_run_list_visit visit, void *context, uni_error *err)
{
    char *place = NULL;
    run_list list = { 0 };
    int status = 0;
    UNI_TRY(uni__run_storage(&place, storage, err));
    DIR *entries = opendir(place);
    if (!entries && errno != ENOENT) {
        status = uni_error_set_errno(err, errno, "listing the runs in %s", place);
        goto done;
    }
    for (struct dirent *entry = entries ? readdir(entries) : NULL; entry && status == 0;
         entry = readdir(entries)) {
        if (entry->d_name[0] == '.')
            continue;
        char *dir = uni__path_join(place, entry->d_name, NULL);
        status = dir ? list_experiment(&list, dir, err)
                     : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
        free(dir);
    }
    if (list.count > 1)
        qsort(list.items, list.count, sizeof *list.items, newest_first);
    for (size_t i = 0; i < list.count && status == 0; i++)
        status = visit(context, list.items[i], err);
done:
    for (size_t i = 0; i < list.count; i++)
        uni_run_close(list.items[i]);
    free(list.items);
    if (entries)
        closedir(entries);
    free(place);
    return status;
}

/* ---- opening by name ---- */

static int keep_first(void *context, uni_run *run, uni_error *err)
{
    *(char **)context = strdup(uni_run_info_of(run)->dir);
    return UNI_EEND;
}

static int newest_of_all(char **out, const char *storage, uni_error *err)
{
    *out = NULL;
    int status = uni_run_list(storage, keep_first, out, err);
    if (*out)
        return 0;
    if (status < 0 && status != UNI_EEND)
        return status;
    return uni_error_set(
        err, UNI_ENOTFOUND,
        "there are no runs in %s: start one with `unisono run -n 2 -- PROGRAM`, or "
        "give --storage",
        storage);
}

/* The directory of the run that name means; the caller frees it. */
static int find_dir(char **out, const char *name, const char *storage, uni_error *err)
{
    char *place = NULL;
    char *dir = NULL;
    int status = 0;
    *out = NULL;
    UNI_TRY(uni__run_storage(&place, storage, err));
    if (!name || !name[0]) {
        UNI_TRY_GOTO(newest_of_all(&dir, place, err), done);
    } else {
        if (name[0] != '/' && name[0] != '~' && strncmp(name, "./", 2) != 0)
            dir = run_at(uni__path_join(place, name, NULL));
        if (!dir) {
            char *absolute = uni__path_absolute(name, err);
            dir = absolute ? run_at(absolute) : NULL;
        }
        if (!dir) {
            status = not_found(name, place, err);
            goto done;
        }
    }
    *out = dir;
done:
    free(place);
    return status;
}

int uni_run_open(uni_run **out, const char *name, const char *storage, uni_error *err)
{
    char *dir = NULL;
    *out = NULL;
    UNI_TRY(find_dir(&dir, name, storage, err));
    return uni__run_open_dir(out, dir, err);
}

int uni__run_open_own(uni_run **out, const char *name, const char *storage, uni_error *err)
{
    char *dir = NULL;
    *out = NULL;
    /* Without /proc every controller would look dead, and its run could be resumed a second
     * time. */
    UNI_TRY(uni__process_check(err));
    UNI_TRY(find_dir(&dir, name, storage, err));
    int status = uni__run_check_owner(dir, err);
    if (status < 0) {
        free(dir);
        return status;
    }
    return uni__run_open_dir(out, dir, err);
}
