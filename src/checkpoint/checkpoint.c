/*
 * checkpoint.c - the public handle: open, verify, latest with fallback, read, and write one outside
 * a run.
 *
 * "Latest" is the highest number whose manifest and bytes verify, among the run's checkpoints/ and
 * .recovery/ (store.h). File times do not matter. A handle belongs to one thread at a time.
 */
#include <unisono/checkpoint.h>

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/random.h"
#include "checkpoint/dict_internal.h"
#include "checkpoint/internal.h"
#include "checkpoint/seal.h"

/* ---- the handle ---- */

static int check_files(const uni_checkpoint *checkpoint, bool contents, uni_error *err)
{
    for (size_t i = 0; i < checkpoint->manifest.file_count; i++)
        UNI_TRY(uni__check_file(checkpoint->path, &checkpoint->manifest.files[i], contents, err));
    return 0;
}

int uni_checkpoint_open(uni_checkpoint **out, const char *path, uni_error *err)
{
    int status;
    *out = NULL;
    uni_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint)
        return uni_error_set(err, UNI_ENOMEM, "no memory to open the checkpoint %s", path);
    uni_error own = { 0 };
    checkpoint->path = uni__path_absolute(path, err ? err : &own);
    if (!checkpoint->path) {
        status = err ? err->code : own.code;
        goto fail;
    }
    UNI_TRY_GOTO(uni__manifest_load(&checkpoint->manifest, checkpoint->path, err), fail);
    UNI_TRY_GOTO(check_files(checkpoint, false, err), fail);
    *out = checkpoint;
    return 0;
fail:
    uni_checkpoint_close(checkpoint);
    return status;
}

void uni_checkpoint_close(uni_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    uni__manifest_clear(&checkpoint->manifest);
    free(checkpoint->path);
    free(checkpoint);
}

int uni_checkpoint_verify(uni_checkpoint *checkpoint, uni_error *err)
{
    return check_files(checkpoint, true, err);
}

/* The part of rank 0 or, when only others saved one, of the lowest rank. -1 when there is none. */
static int first_part(const uni__manifest *manifest)
{
    int first = -1;
    for (size_t i = 0; i < manifest->file_count; i++) {
        int rank = 0, end = 0;
        if (strcmp(manifest->files[i].path, "dict.msgpack") == 0)
            return 0;
        if (sscanf(manifest->files[i].path, "dict.msgpack.rank_%9d%n", &rank, &end) == 1 &&
            manifest->files[i].path[end] == '\0' && (first < 0 || rank < first))
            first = rank;
    }
    return first;
}

const uni_checkpoint_info *uni_checkpoint_info_of(const uni_checkpoint *checkpoint)
{
    uni_checkpoint_info *info = &((uni_checkpoint *)checkpoint)->info;
    *info = (uni_checkpoint_info){
        .path = checkpoint->path,
        .number = checkpoint->manifest.number,
        .iteration = checkpoint->manifest.iteration,
        .attempt = checkpoint->manifest.attempt,
        .timestamp = checkpoint->manifest.timestamp,
        .bytes = uni__manifest_bytes(&checkpoint->manifest),
        .metrics = checkpoint->manifest.metrics,
        .is_dict = checkpoint->manifest.is_dict,
    };
    return info;
}

int uni_checkpoint_read_dict(uni_value **out, uni_checkpoint *checkpoint, uni_error *err)
{
    char suffix[32] = "";
    *out = NULL;
    int rank = checkpoint->manifest.is_dict ? first_part(&checkpoint->manifest) : -1;
    if (rank < 0)
        return uni_error_set(
            err, UNI_EDTYPE,
            "the checkpoint %s holds a directory, not a dictionary; read its files",
            checkpoint->path);
    if (rank > 0)
        snprintf(suffix, sizeof suffix, ".rank_%d", rank);
    return uni__dict_read_part(out, checkpoint->path, suffix, &checkpoint->manifest, err);
}

/* ---- finding the latest ---- */

static bool parse_name(const char *name, int64_t *number)
{
    static const char prefix[] = "checkpoint_";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return false;
    const char *digits = name + sizeof prefix - 1;
    size_t length = strspn(digits, "0123456789");
    if (length < 6 || length > 18 || digits[length] != '\0')
        return false;
    *number = strtoll(digits, NULL, 10);
    return true;
}

static int add_found(uni__found_list *list, int64_t number, const char *dir, const char *name,
                     bool recovery, uni_error *err)
{
    void *grown = uni__grown(list->items, list->count, &list->capacity, sizeof *list->items);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory to list %s", dir);
    list->items = grown;
    char *path = uni__path_join(dir, name, NULL);
    if (!path)
        return uni_error_set(err, UNI_ENOMEM, "no memory to list %s", dir);
    list->items[list->count++] = (uni__found){ number, path, recovery };
    return 0;
}

int uni__find_checkpoints(uni__found_list *list, const char *dir, bool recovery, uni_error *err)
{
    DIR *stream = opendir(dir);
    if (!stream && errno == ENOENT)
        return 0;
    if (!stream)
        return uni_error_set_errno(err, errno, "cannot list the checkpoints in %s", dir);
    int status = 0;
    struct dirent *entry;
    while (status == 0 && (errno = 0, entry = readdir(stream))) {
        int64_t number;
        if (parse_name(entry->d_name, &number))
            status = add_found(list, number, dir, entry->d_name, recovery, err);
    }
    if (status == 0 && errno != 0)
        status = uni_error_set_errno(err, errno, "cannot list the checkpoints in %s", dir);
    closedir(stream);
    return status;
}

static int newest_first(const void *left, const void *right)
{
    const uni__found *a = left, *b = right;
    if (a->number != b->number)
        return a->number > b->number ? -1 : 1;
    return (int)a->recovery - (int)b->recovery;
}

void uni__found_sort(uni__found_list *list)
{
    if (list->count > 1)
        qsort(list->items, list->count, sizeof *list->items, newest_first);
}

void uni__found_free(uni__found_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i].path);
    free(list->items);
    *list = (uni__found_list){ 0 };
}

int uni__checkpoint_open_found(uni_checkpoint **out, const uni__found *found, uni_error *err)
{
    UNI_TRY(uni_checkpoint_open(out, found->path, err));
    int64_t number = (*out)->manifest.number;
    if (number == found->number)
        return 0;
    uni_checkpoint_close(*out);
    *out = NULL;
    return uni_error_set(err, UNI_ECORRUPT,
                         "the checkpoint %s says of itself that it is number %" PRId64
                         "; was it renamed?",
                         found->path, number);
}

/* Opens the first of the list that verifies; logs the ones that were skipped. */
static int open_first_good(uni_checkpoint **out, const uni__found_list *list, const char *where,
                           uni_error *err)
{
    size_t passed = 0;
    for (size_t i = 0; i < list->count; i++) {
        uni_error why = { 0 };
        uni_checkpoint *checkpoint = NULL;
        int status = uni__checkpoint_open_found(&checkpoint, &list->items[i], &why);
        if (status == 0)
            status = uni_checkpoint_verify(checkpoint, &why);
        if (status == 0) {
            if (passed > 0)
                uni__warn("going back to the checkpoint %s", checkpoint->path);
            *out = checkpoint;
            return 0;
        }
        uni_checkpoint_close(checkpoint);
        passed++;
        uni__warn("the checkpoint %s is passed over: %s", list->items[i].path, why.message);
    }
    if (passed > 0)
        return uni_error_set(err, UNI_ENOTFOUND,
                             "none of the %zu checkpoints in %s can be used; the log says why",
                             passed, where);
    return uni_error_set(err, UNI_ENOTFOUND, "there is no complete checkpoint in %s", where);
}

int uni_checkpoint_open_latest(uni_checkpoint **out, const char *run_dir, uni_error *err)
{
    int status;
    uni__found_list list = { 0 };
    *out = NULL;
    if (!uni__path_is_dir(run_dir))
        return uni_error_set(err, UNI_ENOTFOUND, "there is no run directory %s", run_dir);
    char *checkpoints = uni__path_join(run_dir, UNI__CHECKPOINTS_NAME, NULL);
    char *recovery = uni__path_join(run_dir, UNI__RECOVERY_NAME, NULL);
    if (!checkpoints || !recovery) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory to look into %s", run_dir);
        goto done;
    }
    UNI_TRY_GOTO(uni__find_checkpoints(&list, run_dir, false, err), done);
    UNI_TRY_GOTO(uni__find_checkpoints(&list, checkpoints, false, err), done);
    UNI_TRY_GOTO(uni__find_checkpoints(&list, recovery, true, err), done);
    uni__found_sort(&list);
    status = open_first_good(out, &list, run_dir, err);
done:
    uni__found_free(&list);
    free(checkpoints);
    free(recovery);
    return status;
}

/* ---- a checkpoint outside a run ---- */

/* Encodes into fresh pages that are returned to the system at once; malloc would keep hundreds of
 * megabytes. */
static int write_encoded(const char *dir, const uni_value *dict, uni__manifest *manifest,
                         uni_error *err)
{
    size_t size = 0;
    UNI_TRY(uni__dict_encoded_size(dict, &size, err));
    void *buffer = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        return uni_error_set(err, UNI_ENOMEM, "no memory to encode a dictionary of %zu bytes",
                             size);
    int status = uni__dict_encode(dict, buffer, size, err);
    if (status == 0)
        status = uni__write_dict_part(dir, 0, buffer, size, manifest, err);
    munmap(buffer, size);
    return status;
}

/* Creates a private directory beside path (absolute), for the time until it is complete. */
static int make_hidden_sibling(char **out, const char *path, uni_error *err)
{
    uint64_t random = 0;
    const char *slash = strrchr(path, '/');
    *out = NULL;
    if (uni__random_system(&random, sizeof random) < 0)
        return uni_error_set(err, UNI_EIO, "the system gives no random numbers");
    if (asprintf(out, "%.*s/.%s.%016" PRIx64, (int)(slash - path), path, slash + 1, random) < 0) {
        *out = NULL;
        return uni_error_set(err, UNI_ENOMEM, "no memory to write the checkpoint %s", path);
    }
    int failure = uni__fault(UNI__FAULT_MKDIR, *out, NULL);
    if (failure == 0 && mkdir(*out, 0700) == 0)
        return 0;
    failure = failure ? failure : errno;
    free(*out);
    *out = NULL;
    return uni_error_set_errno(err, failure, "cannot write a checkpoint at %s", path);
}

static int write_complete(const char *path, const uni_value *dict, uni_error *err)
{
    int status;
    bool renamed = false;
    char *staged = NULL;
    uni__manifest manifest = { .is_dict = true, .timestamp = uni__wall_seconds() };
    UNI_TRY(make_hidden_sibling(&staged, path, err));
    UNI_TRY_GOTO(write_encoded(staged, dict, &manifest, err), done);
    UNI_TRY_GOTO(uni__seal(staged, &manifest, err), done);
    UNI_TRY_GOTO(uni__rename_new(staged, path, err), done);
    renamed = true;
    status = uni__fsync_parent(path, err);
done:
    if (status < 0) { /* remove the rest, keep the first error */
        int ignored = uni__remove_tree(renamed ? path : staged, NULL);
        (void)ignored;
    }
    free(staged);
    uni__manifest_clear(&manifest);
    return status;
}

int uni_checkpoint_write_dict(const char *path, const uni_value *dict, uni_error *err)
{
    uni_error own = { 0 };
    char *absolute = uni__path_absolute(path, err ? err : &own);
    if (!absolute)
        return err ? err->code : own.code;
    size_t length = strlen(absolute);
    while (length > 1 && absolute[length - 1] == '/')
        absolute[--length] = '\0';
    int status;
    if (uni__path_exists(absolute))
        status = uni_error_set(err, UNI_EEXISTS,
                               "cannot write a checkpoint at %s: it exists already", path);
    else
        status = write_complete(absolute, dict, err);
    free(absolute);
    return status;
}
