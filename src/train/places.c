/*
 * places.c - see places.h. Order of making: the directory, logs, the journal, the reserve.
 */
#include "train/places.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/owned.h"

#define TAIL_BYTES 16384
#define OLDER_SECONDS 2
#define PLACE_TRIES 10000
#define JOURNAL_NS 2000000000ull
#define RESERVE_FILE ".reserve"
/* run.json with the tail of a log, and the journal's last lines */
#define RESERVE_BYTES (64 * 1024)
#define RESERVE_PER_RANK 512

void uni__places_init(uni__places *places)
{
    *places = (uni__places){ .dir_fd = -1 };
    pthread_mutex_init(&places->journal_lock, NULL);
}

void uni__places_clear(uni__places *places)
{
    uni__journal_close(places->journal);
    if (places->dir_fd >= 0)
        close(places->dir_fd);
    free(places->id);
    free(places->dir);
    free(places->logs_dir);
    free(places->staging_dir);
    pthread_mutex_destroy(&places->journal_lock);
}

/* ---- making them ---- */

static int highest_run(const char *logdir)
{
    DIR *folder = opendir(logdir);
    int highest = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        int number;
        char rest;
        if (sscanf(entry->d_name, "run_%d%c", &number, &rest) == 1 && number > highest)
            highest = number;
    }
    if (folder)
        closedir(folder);
    return highest;
}

/* Room on the disk for the end of the run: without it a run that fills the disk could not write
 * down why it ended, and would look as if its controller had been killed. Where the filesystem
 * cannot reserve, there is none. */
static void keep_reserve(const uni__places *places, int ranks)
{
    int fd = uni__create_at(places->dir_fd, RESERVE_FILE, O_WRONLY | O_NOFOLLOW, NULL);
    if (fd >= 0) {
        int lacks = fallocate(fd, 0, 0, RESERVE_BYTES + RESERVE_PER_RANK * ranks);
        close(fd);
        if (lacks)
            unlinkat(places->dir_fd, RESERVE_FILE, 0);
    }
}

void uni__places_release_reserve(const uni__places *places)
{
    if (places->dir_fd >= 0)
        unlinkat(places->dir_fd, RESERVE_FILE, 0);
}

/* A controller that has just written the end of its run may not have ended yet. */
static int open_journal(uni__places *places, const char *path, uni_error *err)
{
    uint64_t until = uni__monotonic_ns() + JOURNAL_NS;
    for (;;) {
        int status = uni__journal_open_at(&places->journal, places->dir_fd, path, "journal", err);
        if (status != UNI_EBUSY || uni__monotonic_ns() > until)
            return status;
        usleep(10000);
    }
}

static int open_files(uni__places *places, int ranks, uni_error *err)
{
    char *journal = uni__path_join(places->dir, "journal.jsonl", NULL);
    places->logs_dir = uni__path_join(places->dir, "logs", NULL);
    int status = journal && places->logs_dir
                     ? 0
                     : uni_error_set(err, UNI_ENOMEM, "no memory for the paths of a run");
    int logs =
        status == 0 ? uni__make_owned_in(places->dir_fd, "logs", places->logs_dir, err) : status;
    if (logs >= 0) {
        close(logs);
        status = open_journal(places, journal, err);
    }
    free(journal);
    UNI_TRY(logs < 0 ? logs : status);
    keep_reserve(places, ranks);
    return 0;
}

/* Several trainers may share a name: mkdir decides which one gets a number. `place` is a descriptor
 * of logdir. */
static int take_number(uni__places *places, int place, const char *logdir, uni_error *err)
{
    int number = highest_run(logdir) + 1, tries = 0;
    for (;; number++) {
        free(places->dir);
        if (asprintf(&places->dir, "%s/run_%03d", logdir, number) < 0) {
            places->dir = NULL;
            return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
        }
        const char *name = places->dir + strlen(logdir) + 1;
        if (mkdirat(place, name, 0700) == 0) {
            places->number = number;
            places->dir_fd = uni__open_owned_dir(place, name, places->dir, err);
            return places->dir_fd < 0 ? places->dir_fd : 0;
        }
        if (errno != EEXIST || ++tries > PLACE_TRIES) {
            int status =
                uni_error_set_errno(err, errno, "cannot make the run directory %s", places->dir);
            free(places->dir);
            places->dir = NULL;
            return status;
        }
    }
}

int uni__places_make(uni__places *places, const char *logdir, int ranks, uni_error *err)
{
    int place = uni__make_owned_dir(logdir, err);
    UNI_TRY(place);
    int status = take_number(places, place, logdir, err);
    close(place);
    UNI_TRY(status);
    const char *slash = strrchr(logdir, '/');
    if (asprintf(&places->id, "%s/run_%03d", slash ? slash + 1 : logdir, places->number) < 0) {
        places->id = NULL;
        return uni_error_set(err, UNI_ENOMEM, "no memory for a name");
    }
    return open_files(places, ranks, err);
}

int uni__places_reopen(uni__places *places, int ranks, uni_error *err)
{
    UNI_TRY(uni__remove_temporaries(places->dir, err));
    places->dir_fd = uni__open_owned_below(places->dir, err);
    UNI_TRY(places->dir_fd);
    return open_files(places, ranks, err);
}

void uni__places_note(uni__places *places, int attempt, const char *event, uni_value *record,
                      bool durable)
{
    uni_error err = { 0 };
    uni_value *line = uni_value_dict();
    int status = 0;
    status |= uni_dict_take(line, "event", uni_value_string(event));
    status |= uni_dict_take(line, "time", uni_value_float(uni__wall_seconds()));
    status |= uni_dict_take(line, "attempt", uni_value_int(attempt));
    for (size_t i = 0; i < uni_dict_size(record); i++)
        status |= uni_dict_take(line, uni_dict_key_at(record, i),
                                uni_value_copy(uni_dict_value_at(record, i)));
    pthread_mutex_lock(&places->journal_lock);
    if (status < 0 || uni__journal_append(places->journal, line, durable, &err) < 0)
        uni__warn("the journal of %s lacks a record \"%s\": %s", places->id, event, err.message);
    pthread_mutex_unlock(&places->journal_lock);
    uni_value_free(line);
    uni_value_free(record);
}

/* ---- logs ---- */

char *uni__places_log(const uni__places *places, int rank)
{
    char *path = NULL;
    return asprintf(&path, "%s/rank_%d.log", places->logs_dir, rank) < 0 ? NULL : path;
}

char *uni__places_log_tail(const uni__places *places, int rank, int64_t begin, int lines)
{
    char *path = uni__places_log(places, rank), *text = NULL;
    struct stat info;
    /* A worker may have put anything in its place, a FIFO too. */
    int fd = path ? uni__open_unlinked(path, NULL) : -1;
    free(path);
    if (fd < 0 || fstat(fd, &info) < 0) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    /* Only what this attempt wrote; a log that was cut since then is shorter than its start. */
    off_t start = info.st_size >= begin ? (off_t)begin : 0;
    if (info.st_size - start > TAIL_BYTES)
        start = info.st_size - TAIL_BYTES;
    text = calloc(1, (size_t)(info.st_size - start) + 1);
    ssize_t n = text ? pread(fd, text, (size_t)(info.st_size - start), start) : 0;
    close(fd);
    if (n <= 0) {
        free(text);
        return NULL;
    }
    char *from = text + n;
    for (int count = 0; from > text; from--)
        if (from[-1] == '\n' && from != text + n && ++count >= lines)
            break;
    memmove(text, from, strlen(from) + 1);
    return text;
}

/* A new file with the bytes from `begin` to `end` at the same places, and a hole before them. Not
 * more: the program may write faster than we copy, and then a copy of all would never end. */
static int copy_part(int from, const char *to, off_t begin, off_t end, uni_error *err)
{
    char buffer[65536];
    int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    ssize_t n = fd >= 0 && ftruncate(fd, end) == 0 ? 1 : -1;
    while (n > 0 && begin < end) {
        size_t part = end - begin < (off_t)sizeof buffer ? (size_t)(end - begin) : sizeof buffer;
        n = pread(from, buffer, part, begin);
        n = n > 0 ? pwrite(fd, buffer, (size_t)n, begin) : n;
        begin += n > 0 ? n : 0;
    }
    int failure = n < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (failure && fd >= 0 && unlink(to) < 0)
        uni__warn("cannot remove %s: %s", to, strerror(errno));
    return failure ? uni_error_set_errno(err, failure, "cannot write %s", to) : 0;
}

/* Older lines go to rank_N.log.1 once the file has passed the cap. Where the filesystem can cut a
 * file's head off (ext4, xfs), no line is lost or torn; elsewhere the file is copied and emptied,
 * and lines written in between go missing. */
static void cap_log(const char *path, uint64_t cap)
{
    struct stat info;
    uni_error err = { 0 };
    char *older = NULL, *making = NULL;
    if (stat(path, &info) < 0 || (uint64_t)info.st_size <= cap)
        return;
    if (asprintf(&older, "%s.1", path) < 0)
        older = NULL;
    if (asprintf(&making, "%s.1.tmp", path) < 0)
        making = NULL;
    int fd = older && making ? open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd >= 0 && unlink(making) < 0 && errno != ENOENT)
        uni__warn("cannot remove %s: %s", making, strerror(errno));
    off_t kept = (off_t)cap < info.st_size ? info.st_size - (off_t)cap : 0;
    if (fd >= 0 && copy_part(fd, making, kept, info.st_size, &err) == 0) {
        off_t block = info.st_blksize > 0 ? info.st_blksize : 4096,
              head = info.st_size / block * block;
        int failed = 0;
        if (head > 0 && fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, head) == 0)
            failed = truncate(making, head); /* the rest of the copy is still in the file */
        else
            failed = ftruncate(fd, 0);
        /* Under its name only now: it tells readers that the file begins anew where it ends. */
        if (failed || rename(making, older) < 0)
            uni__warn("cannot shorten %s: %s", path, strerror(errno));
    } else if (err.code) {
        uni__warn("the log stays longer than its cap: %s", err.message);
    }
    if (fd >= 0)
        close(fd);
    free(making);
    free(older);
}

/* A fast writer can get far beyond the cap between two looks, so the older part may be larger than
 * it: cut to its newest `cap` bytes once readers have had two seconds to take it. */
static void trim_older(const char *path, uint64_t cap)
{
    struct stat info;
    char *older = NULL;
    if (asprintf(&older, "%s.1", path) < 0)
        return;
    if (stat(older, &info) == 0 && (uint64_t)info.st_size > cap &&
        uni__wall_seconds() - (double)info.st_ctim.tv_sec > OLDER_SECONDS) {
        off_t block = info.st_blksize > 0 ? info.st_blksize : 4096;
        off_t drop = (info.st_size - (off_t)cap + block - 1) / block * block;
        int fd = open(older, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || drop >= info.st_size || fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, drop) < 0)
            if (unlink(older) <
                0) /* where heads cannot be cut off, nothing old is kept rather than too much */
                uni__warn("cannot shorten %s: %s", older, strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    free(older);
}

void uni__places_cap_log(const uni__places *places, int rank, uint64_t cap)
{
    char *path = uni__places_log(places, rank);
    if (path) {
        trim_older(path, cap);
        cap_log(path, cap);
    }
    free(path);
}
