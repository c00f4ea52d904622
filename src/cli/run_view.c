/* run_view.c - see run_view.h. */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <unisono/checkpoint.h>

#include "base/file.h"
#include "cli/format.h"
#include "cli/run_view.h"
#include "train/shared.h"

int cli_status_style(uni_run_status status)
{
    switch (status) {
    case UNI_RUN_SUCCEEDED:
        return CLI_GOOD;
    case UNI_RUN_FAILED:
        return CLI_BAD;
    case UNI_RUN_STARTING:
    case UNI_RUN_RUNNING:
        return CLI_INFO;
    default:
        return CLI_WARN;
    }
}

void cli_status_text(const cli_terminal *terminal, uni_run_status status, char *out, size_t size)
{
    static const struct {
        const char *unicode, *ascii;
    } marks[] = {
        [UNI_RUN_STARTING] = { "◌", "*" },  [UNI_RUN_RUNNING] = { "●", "*" },
        [UNI_RUN_SUCCEEDED] = { "✓", "+" }, [UNI_RUN_FAILED] = { "✗", "x" },
        [UNI_RUN_STOPPED] = { "■", "-" },   [UNI_RUN_INTERRUPTED] = { "!", "!" },
    };
    snprintf(out, size, "%s %s", terminal->unicode ? marks[status].unicode : marks[status].ascii,
             uni_run_status_name(status));
}

/* The later of `last` and the file's mtime. */
static double later(double last, const char *dir, const char *name)
{
    struct stat info;
    char *path = uni__path_join(dir, name, NULL);
    if (path && stat(path, &info) == 0) {
        double written = (double)info.st_mtim.tv_sec + (double)info.st_mtim.tv_nsec * 1e-9;
        last = written > last ? written : last;
    }
    free(path);
    return last;
}

/* For a run whose controller was killed: the agent touches the workers' logs when it ends them for
 * that reason. If the agent was killed too, the last write counts. */
static double last_sign_of_life(const uni_run *run)
{
    const uni_value *about = uni_run_info_of(run)->description;
    double last = uni_dict_get_float(about, "updated", 0);
    last = later(last, uni_run_info_of(run)->dir, "results.jsonl");
    last = later(last, uni_run_info_of(run)->dir, "journal.jsonl");
    int64_t num_workers = uni_dict_get_int(about, "num_workers", 0);
    for (int64_t rank = 0; rank < num_workers; rank++) {
        char name[48];
        snprintf(name, sizeof name, "logs/rank_%lld.log", (long long)rank);
        last = later(last, uni_run_info_of(run)->dir, name);
    }
    return last;
}

double cli_run_seconds(const uni_run *run, double now)
{
    const uni_value *about = uni_run_info_of(run)->description;
    double end = uni_dict_get_float(about, "finished", 0);
    if (uni_run_is_live(run))
        end = now;
    else if (!(end > 0))
        end = last_sign_of_life(run);
    double seconds = end - uni_dict_get_float(about, "created", end);
    return seconds > 0 ? seconds : 0;
}

void cli_add_word(uni__text *out, const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_-+=.,:/@%^";
    if (out->size)
        uni__text_add_string(out, " ");
    if (word[0] && strspn(word, safe) == strlen(word)) {
        uni__text_add_string(out, word);
        return;
    }
    uni__text_add_string(out, "'");
    for (; *word; word++) {
        if (*word == '\'')
            uni__text_add_string(out, "'\\''");
        else
            uni__text_add(out, word, 1);
    }
    uni__text_add_string(out, "'");
}

void cli_run_what(const uni_run *run, uni__text *out)
{
    const uni_value *about = uni_run_info_of(run)->description;
    const uni_value *program = uni_dict_get(about, "program");
    for (size_t i = 0; i < uni_list_size(program); i++)
        cli_add_word(out, uni_value_as_string(uni_list_get(program, i), "?"));
    if (!uni_list_size(program)) {
        uni__text_add_string(out, "function ");
        uni__text_add_string(out, uni_dict_get_string(about, "function", "?"));
    }
}

bool cli_run_resumable(const uni_run *run)
{
    return !uni_run_is_live(run) && uni_run_info_of(run)->status != UNI_RUN_SUCCEEDED &&
           uni_list_size(uni_dict_get(uni_run_info_of(run)->description, "program")) > 0;
}

/* ---- the last reports ---- */

#define TAIL_BYTES (256 * 1024)

static char *read_tail(const char *path, size_t *size)
{
    struct stat info;
    int file = uni__open_unlinked(path, NULL);
    char *text = NULL;
    if (file >= 0 && fstat(file, &info) == 0) {
        off_t from = info.st_size > TAIL_BYTES ? info.st_size - TAIL_BYTES : 0;
        text = malloc(TAIL_BYTES + 1);
        ssize_t got = text ? pread(file, text, TAIL_BYTES, from) : -1;
        *size = got > 0 ? (size_t)got : 0;
        if (text)
            text[*size] = '\0';
    }
    if (file >= 0)
        close(file);
    return text;
}

/* Restores top-level non-finite numbers, which are null in the file. */
static uni_value *metrics_of(const uni_value *line)
{
    uni_value *metrics = uni_value_copy(uni_dict_get(line, "metrics"));
    const uni_value *nonfinite = uni_dict_get(line, "nonfinite");
    for (size_t i = 0; metrics && i < uni_dict_size(nonfinite); i++) {
        const char *key = uni_dict_key_at(nonfinite, i);
        const char *text = uni_value_as_string(uni_dict_value_at(nonfinite, i), "NaN");
        double number = text[0] == 'N' ? NAN : text[0] == '-' ? -INFINITY : INFINITY;
        if (uni_dict_get(metrics, key) && uni_dict_take(metrics, key, uni_value_float(number)) < 0)
            break;
    }
    return metrics;
}

static int keep_line(uni_value **by_rank, size_t num_ranks, const uni_value *line)
{
    int64_t rank = uni_dict_get_int(line, "rank", -1);
    /* The scan goes backwards: the first report found is the rank's last. */
    if (rank < 0 || (size_t)rank >= num_ranks || by_rank[rank])
        return 0;
    uni_value *entry = uni_value_dict();
    if (uni_dict_take(entry, "rank", uni_value_int(rank)) < 0 ||
        uni_dict_take(entry, "attempt", uni_value_int(uni_dict_get_int(line, "attempt", 1))) < 0 ||
        uni_dict_take(entry, "iteration", uni_value_int(uni_dict_get_int(line, "iteration", 0))) <
            0 ||
        uni_dict_take(entry, "metrics", metrics_of(line)) < 0) {
        uni_value_free(entry);
        return UNI_ENOMEM;
    }
    by_rank[rank] = entry;
    return 1;
}

/* Scans the lines backwards until every rank was found. */
static void scan_tail(char *text, size_t size, uni_value **by_rank, size_t num_ranks)
{
    size_t seen = 0;
    char *end = memrchr(text, '\n', size);
    while (end && end > text && seen < num_ranks) {
        char *start = memrchr(text, '\n', (size_t)(end - text));
        uni_value *line = NULL;
        char *from = start ? start + 1 : text;
        if (uni_json_read(&line, from, (size_t)(end - from), NULL) == 0 &&
            keep_line(by_rank, num_ranks, line) > 0)
            seen++;
        uni_value_free(line);
        end = start;
    }
}

uni_value *cli_last_reports(const uni_run *run)
{
    int64_t workers = uni_dict_get_int(uni_run_info_of(run)->description, "num_workers", 1);
    size_t num_ranks = workers > 0 && workers < 100000 ? (size_t)workers : 1;
    uni_value *list = uni_value_list();
    uni_value **by_rank = calloc(num_ranks, sizeof *by_rank);
    char *path = uni__path_join(uni_run_info_of(run)->dir, "results.jsonl", NULL);
    size_t size = 0;
    char *text = path ? read_tail(path, &size) : NULL;
    if (text && by_rank)
        scan_tail(text, size, by_rank, num_ranks);
    for (size_t rank = 0; by_rank && rank < num_ranks; rank++)
        if (by_rank[rank] && uni_list_take(list, by_rank[rank]) < 0)
            break;
    free(text);
    free(path);
    free(by_rank);
    return list;
}

int64_t cli_run_workers(const uni_value *about)
{
    int64_t workers = uni_dict_get_int(about, "num_workers", 0);
    return uni_dict_get(uni_dict_get(about, "options"), "max_workers")
               ? uni_dict_get_int(about, "members", workers)
               : workers;
}

int64_t cli_run_iterations(const uni_run *run)
{
    int64_t most = uni_dict_get_int(uni_run_info_of(run)->description, "iterations", 0);
    if (!uni_run_is_live(run) && uni_run_info_of(run)->status != UNI_RUN_INTERRUPTED)
        return most;
    uni_value *reports = cli_last_reports(run);
    for (size_t i = 0; i < uni_list_size(reports); i++) {
        int64_t here = uni_dict_get_int(uni_list_get(reports, i), "iteration", 0);
        most = here > most ? here : most;
    }
    uni_value_free(reports);
    return most;
}

/* ---- checkpoints ---- */

static int is_checkpoint(const struct dirent *entry)
{
    return strncmp(entry->d_name, "checkpoint_", 11) == 0;
}

/* A run may be another user's, and a link in it would show a checkpoint from elsewhere as its
 * own. */
static bool is_own_dir(const char *path)
{
    struct stat info;
    return path && lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static uni_value *describe_checkpoint(const char *run_dir, const char *name)
{
    uni_value *entry = uni_value_dict();
    char *path = uni__path_join(run_dir, "checkpoints", name, NULL);
    uni_checkpoint *checkpoint = NULL;
    uni_error err = { 0 };
    int status = uni_dict_take(entry, "name", uni_value_string(name)) < 0 ||
                 uni_dict_take(entry, "path", uni_value_string(path)) < 0;
    if (!status && !is_own_dir(path))
        status = uni_dict_take(entry, "error", uni_value_string("not a directory")) < 0;
    else if (!status && uni_checkpoint_open(&checkpoint, path, &err) < 0)
        status = uni_dict_take(entry, "error", uni_value_string(err.message)) < 0;
    else if (!status)
        status =
            uni_dict_take(entry, "number",
                          uni_value_int(uni_checkpoint_info_of(checkpoint)->number)) < 0 ||
            uni_dict_take(entry, "iteration",
                          uni_value_int(uni_checkpoint_info_of(checkpoint)->iteration)) < 0 ||
            uni_dict_take(entry, "time",
                          uni_value_float(uni_checkpoint_info_of(checkpoint)->timestamp)) < 0 ||
            uni_dict_take(entry, "bytes",
                          uni_value_int((int64_t)uni_checkpoint_info_of(checkpoint)->bytes)) < 0 ||
            uni_dict_take(entry, "metrics",
                          uni_value_copy(uni_checkpoint_info_of(checkpoint)->metrics)) < 0;
    uni_checkpoint_close(checkpoint);
    free(path);
    if (status) {
        uni_value_free(entry);
        entry = NULL;
    }
    return entry;
}

uni_value *cli_checkpoints(const uni_run *run)
{
    uni_value *list = uni_value_list();
    char *dir = uni__path_join(uni_run_info_of(run)->dir, "checkpoints", NULL);
    struct dirent **names = NULL;
    int count = is_own_dir(dir) ? scandir(dir, &names, is_checkpoint, alphasort) : 0;
    bool failed = list == NULL;
    for (int i = 0; i < count; i++) {
        failed = failed || uni_list_take(list, describe_checkpoint(uni_run_info_of(run)->dir,
                                                                   names[i]->d_name)) < 0;
        free(names[i]);
    }
    free(names);
    free(dir);
    if (failed) {
        uni_value_free(list);
        list = NULL;
    }
    return list;
}

int64_t cli_step_checkpoint(const uni_run *run)
{
    const char *run_dir = uni_run_info_of(run)->dir;
    char *dir = uni__path_join(run_dir, UNI__STEPS_NAME, NULL);
    char *all = uni__path_join(run_dir, UNI__STEPS_NAME, "checkpoints", NULL);
    uni_checkpoint *newest = NULL;
    int64_t iteration = -1;
    if (is_own_dir(dir) && is_own_dir(all) && uni_checkpoint_open_latest(&newest, dir, NULL) == 0)
        iteration = uni_checkpoint_info_of(newest)->iteration;
    uni_checkpoint_close(newest);
    free(dir);
    free(all);
    return iteration;
}

/* ---- as JSON, and as one line ---- */

uni_value *cli_run_json(const uni_run *run)
{
    uni_value *copy = uni_value_copy(uni_run_info_of(run)->description);
    const char *status = uni_run_status_name(uni_run_info_of(run)->status);
    if (copy && (uni_dict_take(copy, "status", uni_value_string(status)) < 0 ||
                 uni_dict_take(copy, "dir", uni_value_string(uni_run_info_of(run)->dir)) < 0)) {
        uni_value_free(copy);
        copy = NULL;
    }
    return copy;
}

void cli_add_metrics(uni__text *out, const uni_value *metrics, size_t limit)
{
    size_t shown = 0, left = 0;
    for (size_t i = 0; i < uni_dict_size(metrics); i++) {
        const char *key = uni_dict_key_at(metrics, i);
        const uni_value *value = uni_dict_value_at(metrics, i);
        char number[CLI_SHORT];
        if (key[0] == '_' || (!uni_value_is_number(value) && !uni_value_as_string(value, NULL)))
            continue;
        if (shown == limit) {
            left++;
            continue;
        }
        uni__text_add_format(out, "%s%s %s", shown ? "  " : "", key,
                             uni_value_is_number(value)
                                 ? cli_number(uni_value_as_float(value, 0), number)
                                 : uni_value_as_string(value, ""));
        shown++;
    }
    if (left)
        uni__text_add_format(out, "  (+%zu)", left);
}
