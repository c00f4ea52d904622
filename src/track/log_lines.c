/* log_lines.c - see log_lines.h. Polls with fstat and read: a notification would save nothing at 20
 * polls per second, and polling works on every file system. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "track/log_lines.h"

#define LONGEST_LINE (64 * 1024) /* longer lines are split, so that memory stays bounded */

typedef struct rank_log {
    int file; /* -1: does not exist yet */
    ino_t inode, older_inode;
    off_t offset;
    int too_short; /* polls since it became shorter than what was read */
    struct timespec older_time;
    uni__text line; /* incomplete so far */
    char *path, *older;
    size_t name; /* where "logs/rank_N.log" begins in both */
    int rank;
} rank_log;

struct uni__log_lines {
    char *run_dir;
    rank_log *ranks;
    int num_ranks;
    uni__log_line take; /* of the current poll */
    void *context;
};

static void end_line(uni__log_lines *lines, rank_log *log)
{
    char *text = log->line.size ? log->line.data : "";
    lines->take(lines->context, log->rank, text,
                log->line.size ? uni__settle_line(text, log->line.size) : 0);
    uni__text_clear(&log->line);
}

static void remember_older(rank_log *log, const struct stat *info)
{
    log->older_inode = info->st_ino;
    log->older_time = info->st_ctim;
}

/* Inodes are reused at once, so the mtime counts too. */
static bool same_older(const rank_log *log, const struct stat *info)
{
    return info->st_ino == log->older_inode && info->st_ctim.tv_sec == log->older_time.tv_sec &&
           info->st_ctim.tv_nsec == log->older_time.tv_nsec;
}

static void take_bytes(uni__log_lines *lines, rank_log *log, const char *data, size_t size)
{
    while (size) {
        const char *feed = memchr(data, '\n', size);
        size_t part = feed ? (size_t)(feed - data) : size;
        size_t room = LONGEST_LINE - log->line.size;
        bool cut = part > room;
        part = cut ? room : part;
        uni__text_add(&log->line, data, part);
        if (feed && !cut)
            part++;
        if (feed || cut)
            end_line(lines, log);
        data += part;
        size -= part;
    }
}

/* Reads from log->offset to the end of the file; returns the bytes. */
static size_t read_rest(uni__log_lines *lines, rank_log *log, int file)
{
    char buffer[16 * 1024];
    size_t total = 0;
    for (ssize_t got = 1; got > 0 && total < 1024 * 1024;) {
        got = pread(file, buffer, sizeof buffer, log->offset);
        if (got > 0) {
            take_bytes(lines, log, buffer, (size_t)got);
            log->offset += got;
            total += (size_t)got;
        }
    }
    return total;
}

/* rank_N.log.1 is new: it holds the file up to where the file now begins. It gets that name last,
 * so the file is already truncated. */
static size_t read_rotated(uni__log_lines *lines, rank_log *log)
{
    size_t total = 0;
    struct stat info;
    if (stat(log->older, &info) < 0 || same_older(log, &info))
        return 0;
    int file = uni__open_below(lines->run_dir, log->older + log->name, NULL);
    if (file < 0 || fstat(file, &info) < 0)
        info.st_size = 0;
    /* It begins with a hole if the program wrote far more than is kept. */
    off_t kept = file >= 0 ? lseek(file, log->offset, SEEK_DATA) : -1;
    if (kept > log->offset)
        log->offset = kept;
    for (size_t got = 1; file >= 0 && got > 0 && log->offset < info.st_size; total += got)
        got = read_rest(lines, log, file);
    log->offset = log->offset > info.st_size ? log->offset - info.st_size : 0;
    remember_older(log, &info);
    if (file >= 0)
        close(file);
    return total;
}

/* Does not follow links: the run may belong to another user. */
static bool open_log(const uni__log_lines *lines, rank_log *log)
{
    struct stat info;
    log->file = uni__open_below(lines->run_dir, log->path + log->name, NULL);
    if (log->file < 0)
        return false;
    log->inode = fstat(log->file, &info) == 0 ? info.st_ino : 0;
    return true;
}

/* Polls of a file that is too short before it counts as truncated. */
#define PATIENCE 20

static size_t poll_rank(uni__log_lines *lines, rank_log *log)
{
    struct stat info;
    size_t total = 0;
    if (log->file >= 0 && stat(log->path, &info) == 0 && info.st_ino != log->inode) {
        total += read_rest(lines, log, log->file); /* it was renamed: first read its end */
        close(log->file);
        log->file = -1;
        log->offset = 0;
    }
    if (log->file < 0 && !open_log(lines, log))
        return total;
    total += read_rotated(lines, log);
    bool too_short = fstat(log->file, &info) == 0 && info.st_size < log->offset;
    log->too_short = too_short ? log->too_short + 1 : 0;
    if (log->too_short > PATIENCE)
        log->offset = 0;
    return total + read_rest(lines, log, log->file);
}

static int no_memory(uni__log_lines *lines, uni_error *err)
{
    uni__log_lines_free(lines);
    return uni_error_set(err, UNI_ENOMEM, "no memory to follow the logs");
}

int uni__log_lines_new(uni__log_lines **out, const char *run_dir, int num_ranks, const bool *wanted,
                       bool from_end, uni_error *err)
{
    *out = NULL;
    uni__log_lines *lines = calloc(1, sizeof *lines);
    if (!lines || !(lines->run_dir = strdup(run_dir)) ||
        !(lines->ranks = calloc((size_t)num_ranks + 1, sizeof *lines->ranks)))
        return no_memory(lines, err);
    for (int rank = 0; rank < num_ranks; rank++) {
        if (wanted && !wanted[rank])
            continue;
        rank_log *log = &lines->ranks[lines->num_ranks++];
        char name[64];
        struct stat info;
        snprintf(name, sizeof name, "logs/rank_%d.log", rank);
        log->file = -1;
        log->rank = rank;
        log->path = uni__path_join(run_dir, name, NULL);
        if (!log->path || asprintf(&log->older, "%s.1", log->path) < 0) {
            log->older = NULL;
            return no_memory(lines, err);
        }
        log->name = strlen(log->path) - strlen(name);
        if (stat(log->older, &info) == 0)
            remember_older(log, &info);
        if (from_end && stat(log->path, &info) == 0)
            log->offset = info.st_size;
    }
    *out = lines;
    return 0;
}

size_t uni__log_lines_poll(uni__log_lines *lines, uni__log_line take, void *context)
{
    size_t total = 0;
    lines->take = take;
    lines->context = context;
    for (int i = 0; i < lines->num_ranks; i++)
        total += poll_rank(lines, &lines->ranks[i]);
    return total;
}

void uni__log_lines_drain(uni__log_lines *lines, uni__log_line take, void *context)
{
    for (int idle = 0; idle < 2;)
        idle = uni__log_lines_poll(lines, take, context) > 0 ? 0 : idle + 1;
    for (int i = 0; i < lines->num_ranks; i++)
        if (lines->ranks[i].line.size)
            end_line(lines, &lines->ranks[i]);
}

int64_t uni__log_lines_begin(const uni__log_lines *lines, int rank)
{
    for (int i = 0; i < lines->num_ranks; i++)
        if (lines->ranks[i].rank == rank)
            return lines->ranks[i].offset;
    return -1;
}

void uni__log_lines_free(uni__log_lines *lines)
{
    if (!lines)
        return;
    for (int i = 0; lines->ranks && i < lines->num_ranks; i++) {
        if (lines->ranks[i].file >= 0)
            close(lines->ranks[i].file);
        uni__text_free(&lines->ranks[i].line);
        free(lines->ranks[i].path);
        free(lines->ranks[i].older);
    }
    free(lines->ranks);
    free(lines->run_dir);
    free(lines);
}
