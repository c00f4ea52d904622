/* follow_logs.c - see follow_logs.h; track/log_lines.h reads the files. */
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
#include "track/log_lines.h"

#define BUSY_MS 20
#define IDLE_MS 50

typedef char prefix[320];

struct cli_log_follower {
    uni__log_lines *lines;
    prefix *prefixes; /* by rank */
    int num_ranks;
    /* run.json, which gives the current host of each rank; NULL: no prefix. */
    char *about;
    struct stat about_seen;
    const cli_terminal *out;
    uni__text ready; /* whole lines, to be written in one call */
    uni__text rendered; /* the same, as rendered for the terminal */
    pthread_t thread;
    bool has_thread;
    atomic_bool stopping;
};

static void make_prefix(prefix to, int rank, const cli_terminal *out, const char *host)
{
    uni__text safe = { 0 };
    uni__text_add_safe(&safe, host, strlen(host), "");
    snprintf(to, sizeof(prefix), "%s%.100s:%d%s %s%s%s ", cli_begin(out, CLI_SERIES + rank),
             safe.data ? safe.data : "", rank, cli_end(out, CLI_SERIES + rank),
             cli_begin(out, CLI_DIM), out->is_terminal && out->unicode ? "│" : "|",
             cli_end(out, CLI_DIM));
    uni__text_free(&safe);
}

/* Ranks move when a spare host takes over, and srun reports their hosts only after it has started
 * them. */
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
        int64_t rank = uni_dict_get_int(worker, "rank", -1);
        if (host && rank >= 0 && rank < follower->num_ranks)
            make_prefix(follower->prefixes[rank], (int)rank, follower->out, host);
    }
    uni_value_free(about);
}

int cli_log_follower_new(cli_log_follower **out, const cli_log_options *options, uni_error *err)
{
    *out = NULL;
    cli_log_follower *follower = calloc(1, sizeof *follower);
    if (!follower ||
        !(follower->prefixes = calloc((size_t)options->num_ranks + 1, sizeof(prefix))) ||
        (options->prefix &&
         !(follower->about = uni__path_join(options->run_dir, "run.json", NULL)))) {
        cli_log_follower_free(follower);
        return uni_error_set(err, UNI_ENOMEM, "no memory to follow the logs");
    }
    follower->out = options->out;
    follower->num_ranks = options->num_ranks;
    int status = uni__log_lines_new(&follower->lines, options->run_dir, options->num_ranks,
                                    options->wanted, options->from_end, err);
    if (status < 0) {
        cli_log_follower_free(follower);
        return status;
    }
    char here[100] = "localhost";
    gethostname(here, sizeof here - 1);
    for (int rank = 0; options->prefix && rank < options->num_ranks; rank++)
        make_prefix(follower->prefixes[rank], rank, options->out, here);
    *out = follower;
    return 0;
}

int64_t cli_log_follower_begin(const cli_log_follower *follower, int rank)
{
    return uni__log_lines_begin(follower->lines, rank);
}

static void add_line(void *context, int rank, const char *line, size_t size)
{
    cli_log_follower *follower = context;
    uni__text_add_string(&follower->ready, follower->prefixes[rank]);
    if (size)
        cli_safe_add_line(follower->out->safe, &follower->ready, line, size, follower->out->colour);
    uni__text_add_string(&follower->ready, "\n");
}

static size_t poll_all(cli_log_follower *follower)
{
    refresh_hosts(follower);
    return uni__log_lines_poll(follower->lines, add_line, follower);
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
    refresh_hosts(follower);
    uni__log_lines_drain(follower->lines, add_line, follower);
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
    uni__log_lines_free(follower->lines);
    uni__text_free(&follower->ready);
    uni__text_free(&follower->rendered);
    free(follower->about);
    free(follower->prefixes);
    free(follower);
}
