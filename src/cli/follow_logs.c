/* follow_logs.c - see follow_logs.h. Polls with fstat and read: a notification would save nothing
 * at 20 looks a second, and polling works on every filesystem. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <unisono/value.h>

#include "base/file.h"
#include "base/json.h"
#include "base/safe_text.h"
#include "cli/follow_logs.h"

#define LONGEST_LINE (64 * 1024) /* a longer one is broken, so that memory stays bounded */
#define BUSY_MS 20
#define IDLE_MS 50

typedef struct rank_log {
    int file; /* -1: not there yet */
    ino_t inode, older_inode;
    off_t offset;
    int too_short; /* looks since it is shorter than what was read */
    struct timespec older_time;
    uni__text line; /* without its end so far */
    char *path, *older;
    size_t name; /* where "logs/rank_N.log" begins in both */
    int rank;
    char prefix[320];
} rank_log;

struct cli_log_follower {
    char *run_dir;
    rank_log *ranks;
    int num_ranks;
    char
        *about; /* run.json, which says on which host each rank is now; NULL: no prefix is wanted */
    struct stat about_seen;
    const cli_terminal *out;
    uni__text ready; /* whole lines, written in one go */
    uni__text rendered; /* the same as the terminal gets them */
    pthread_t thread;
    bool has_thread;
    atomic_bool stopping;
};

static void make_prefix(rank_log *log, const cli_terminal *out, const char *host)
{
    int rank = log->rank;
    uni__text safe = { 0 };
    uni__text_add_safe(&safe, host, strlen(host), "");
    snprintf(log->prefix, sizeof log->prefix, "%s%.100s:%d%s %s%s%s ",
             cli_begin(out, CLI_SERIES + rank), safe.data ? safe.data : "", rank,
             cli_end(out, CLI_SERIES + rank), cli_begin(out, CLI_DIM),
             out->is_terminal && out->unicode ? "│" : "|", cli_end(out, CLI_DIM));
    uni__text_free(&safe);
}

/* Ranks move when a spare host takes over, and srun says where they are only when it has started them. */
static void refresh_hosts(cli_log_follower *follower)
{
    struct stat info;
    uni_value *about = NULL;
    if (!follower->about || stat(follower->about, &info) < 0 ||
        (info.st_ino == follower->about_seen.st_ino &&
         info.st_mtim.tv_sec == follower->about_seen.st_mtim.tv_sec &&
         info.st_mtim.tv_nsec == follower->about_seen.st_mtim.tv_nsec) ||
        uni__json_read_unlinked(&about, follower->about, NULL) < 0)
        return;
    follower->about_seen = info;
    const uni_value *workers = uni_dict_get(about, "workers");
    for (size_t w = 0; w < uni_list_size(workers); w++) {
        const uni_value *worker = uni_list_get(workers, w);
        const char *host = uni_dict_get_string(worker, "host", NULL);
        for (int i = 0; host && i < follower->num_ranks; i++)
            if (follower->ranks[i].rank == uni_dict_get_int(worker, "rank", -1))
                make_prefix(&follower->ranks[i], follower->out, host);
    }
    uni_value_free(about);
}

static void remember_older(rank_log *log, const struct stat *info)
{
    log->older_inode = info->st_ino;
    log->older_time = info->st_ctim;
}

/* Inodes are used again at once, so the time of the last change counts too. */
static bool same_older(const rank_log *log, const struct stat *info)
{
    return info->st_ino == log->older_inode && info->st_ctim.tv_sec == log->older_time.tv_sec &&
           info->st_ctim.tv_nsec == log->older_time.tv_nsec;
}

int cli_log_follower_new(cli_log_follower **out, const cli_log_options *options, uni_error *err)
{
    *out = NULL;
    cli_log_follower *follower = calloc(1, sizeof *follower);
    if (follower)
        follower->ranks = calloc((size_t)options->num_ranks + 1, sizeof *follower->ranks);
    if (!follower || !follower->ranks) {
        free(follower);
        return uni_error_set(err, UNI_ENOMEM, "no memory to follow the logs");
    }
    follower->out = options->out;
    follower->run_dir = strdup(options->run_dir);
    if (!follower->run_dir || (options->prefix && !(follower->about = uni__path_join(
                                                        options->run_dir, "run.json", NULL)))) {
        cli_log_follower_free(follower);
        return uni_error_set(err, UNI_ENOMEM, "no memory to follow the logs");
    }
    char here[100] = "localhost";
    gethostname(here, sizeof here - 1);
    for (int rank = 0; rank < options->num_ranks; rank++) {
        if (options->wanted && !options->wanted[rank])
            continue;
        rank_log *log = &follower->ranks[follower->num_ranks++];
        char name[64];
        struct stat info;
        snprintf(name, sizeof name, "logs/rank_%d.log", rank);
        log->file = -1;
        log->rank = rank;
        log->path = uni__path_join(options->run_dir, name, NULL);
        if (options->prefix)
            make_prefix(log, options->out, here);
        if (!log->path || asprintf(&log->older, "%s.1", log->path) < 0) {
            log->older = NULL;
            cli_log_follower_free(follower);
            return uni_error_set(err, UNI_ENOMEM, "no memory to follow the logs");
        }
        log->name = strlen(log->path) - strlen(name);
        if (stat(log->older, &info) == 0)
            remember_older(log, &info);
        if (options->from_end && stat(log->path, &info) == 0)
            log->offset = info.st_size;
    }
    *out = follower;
    return 0;
}

/* A bar that a program draws over itself is shown as it looked last. */
static void end_line(cli_log_follower *follower, rank_log *log)
{
    uni__text_add_string(&follower->ready, log->prefix);
    if (log->line.size)
        cli_safe_add_line(follower->out->safe, &follower->ready, log->line.data,
                          uni__settle_line(log->line.data, log->line.size), follower->out->colour);
    uni__text_add_string(&follower->ready, "\n");
    uni__text_clear(&log->line);
}

static void take_bytes(cli_log_follower *follower, rank_log *log, const char *data, size_t size)
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
            end_line(follower, log);
        data += part;
        size -= part;
    }
}

/* Reads on from log->offset until the end of the file; returns the bytes. */
static size_t read_rest(cli_log_follower *follower, rank_log *log, int file)
{
    char buffer[16 * 1024];
    size_t total = 0;
    for (ssize_t got = 1; got > 0 && total < 1024 * 1024;) {
        got = pread(file, buffer, sizeof buffer, log->offset);
        if (got > 0) {
            take_bytes(follower, log, buffer, (size_t)got);
            log->offset += got;
            total += (size_t)got;
        }
    }
    return total;
}

/* rank_N.log.1 is a new one: it holds the file up to where the file now begins. It gets that name when
 * all is done, so the file is cut already. */
static size_t read_rotated(cli_log_follower *follower, rank_log *log)
{
    size_t total = 0;
    struct stat info;
    if (stat(log->older, &info) < 0 || same_older(log, &info))
        return 0;
    int file = uni__open_below(follower->run_dir, log->older + log->name, NULL);
    if (file < 0 || fstat(file, &info) < 0)
        info.st_size = 0;
    for (size_t got = 1; file >= 0 && got > 0 && log->offset < info.st_size; total += got)
        got = read_rest(follower, log, file);
    log->offset = log->offset > info.st_size ? log->offset - info.st_size : 0;
    remember_older(log, &info);
    if (file >= 0)
        close(file);
    return total;
}

/* Links are not followed: the run may be another user's. */
static bool open_log(const cli_log_follower *follower, rank_log *log)
{
    struct stat info;
    log->file = uni__open_below(follower->run_dir, log->path + log->name, NULL);
    if (log->file < 0)
        return false;
    log->inode = fstat(log->file, &info) == 0 ? info.st_ino : 0;
    return true;
}

#define PATIENCE                                                                                   \
    20 /* looks at a file that is too short until we believe that somebody emptied it */

static size_t poll_rank(cli_log_follower *follower, rank_log *log)
{
    struct stat info;
    size_t total = 0;
    if (log->file >= 0 && stat(log->path, &info) == 0 && info.st_ino != log->inode) {
        total += read_rest(follower, log, log->file); /* it was renamed: first its end */
        close(log->file);
        log->file = -1;
        log->offset = 0;
    }
    if (log->file < 0 && !open_log(follower, log))
        return total;
    total += read_rotated(follower, log);
    bool too_short = fstat(log->file, &info) == 0 && info.st_size < log->offset;
    log->too_short = too_short ? log->too_short + 1 : 0;
    if (log->too_short > PATIENCE)
        log->offset = 0;
    return total + read_rest(follower, log, log->file);
}

static size_t poll_all(cli_log_follower *follower)
{
    size_t total = 0;
    refresh_hosts(follower);
    for (int i = 0; i < follower->num_ranks; i++)
        total += poll_rank(follower, &follower->ranks[i]);
    return total;
}

static void write_ready(cli_log_follower *follower)
{
    if (!follower->ready.size)
        return;
    FILE *out = follower->out->out;
    fwrite(follower->ready.data, 1, follower->ready.size, out);
    fflush(out);
    uni__text_clear(&follower->ready);
}

size_t cli_log_follower_poll(cli_log_follower *follower)
{
    size_t total = poll_all(follower);
    write_ready(follower);
    return total;
}

const char *cli_log_follower_take(cli_log_follower *follower, size_t *size)
{
    uni__text_clear(&follower->ready);
    uni__text_clear(&follower->rendered);
    poll_all(follower);
    cli_safe_render(follower->out->safe, &follower->rendered, follower->ready.data,
                    follower->ready.size);
    *size = follower->rendered.size;
    return follower->rendered.data;
}

void cli_log_follower_drain(cli_log_follower *follower)
{
    for (int idle = 0; idle < 2;)
        idle = cli_log_follower_poll(follower) > 0 ? 0 : idle + 1;
    for (int i = 0; i < follower->num_ranks; i++)
        if (follower->ranks[i].line.size)
            end_line(follower, &follower->ranks[i]);
    write_ready(follower);
}

static void *follow(void *context)
{
    cli_log_follower *follower = context;
    while (!atomic_load(&follower->stopping)) {
        long wait = cli_log_follower_poll(follower) ? BUSY_MS : IDLE_MS;
        nanosleep(&(struct timespec){ .tv_nsec = wait * 1000000 }, NULL);
    }
    return NULL;
}

int cli_log_follower_start(cli_log_follower *follower, uni_error *err)
{
    int failure = pthread_create(&follower->thread, NULL, follow, follower);
    if (failure)
        return uni_error_set_errno(err, failure, "starting the thread that follows the logs");
    follower->has_thread = true;
    return 0;
}

void cli_log_follower_stop(cli_log_follower *follower)
{
    if (!follower || !follower->has_thread)
        return;
    atomic_store(&follower->stopping, true);
    pthread_join(follower->thread, NULL);
    follower->has_thread = false;
    cli_log_follower_drain(follower);
}

void cli_log_follower_free(cli_log_follower *follower)
{
    if (!follower)
        return;
    cli_log_follower_stop(follower);
    for (int i = 0; i < follower->num_ranks; i++) {
        if (follower->ranks[i].file >= 0)
            close(follower->ranks[i].file);
        uni__text_free(&follower->ranks[i].line);
        free(follower->ranks[i].path);
        free(follower->ranks[i].older);
    }
    uni__text_free(&follower->ready);
    uni__text_free(&follower->rendered);
    free(follower->about);
    free(follower->run_dir);
    free(follower->ranks);
    free(follower);
}
