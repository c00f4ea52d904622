/*
 * run_dir.c - the run directory: making it, run.json, the journal, the workers' logs (docs/formats.md).
 *
 * Thread: making and reopening by the user's thread before the run begins; the rest by the controller thread, uni__run_note also by
 * the persist thread.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <unisono/version.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/owned.h"
#include "train/hosts_internal.h"
#include "train/run_owner.h"
#include "train/run_reader.h"

#define TAIL_BYTES 16384
#define OLDER_SECONDS 2
#define PLACE_TRIES 10000
#define RESERVE_FILE ".reserve"
#define RESERVE_BYTES                                                                              \
    (64 * 1024) /* run.json with the tail of a log, and the journal's last lines */
#define RESERVE_PER_RANK 512

/* ---- making it ---- */

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

/* Room on the disk for the end of the run: without it a run that fills the disk could not write down why it ended, and
 * would look as if somebody had killed it. Where the filesystem cannot reserve, there is none. */
static void keep_reserve(const uni__run *run)
{
    int fd = uni__create_at(run->dir_fd, RESERVE_FILE, O_WRONLY | O_NOFOLLOW, NULL);
    if (fd >= 0) {
        int lacks = fallocate(fd, 0, 0, RESERVE_BYTES + RESERVE_PER_RANK * run->num_workers);
        close(fd);
        if (lacks)
            unlinkat(run->dir_fd, RESERVE_FILE, 0);
    }
}

void uni__run_release_reserve(const uni__run *run)
{
    if (run->dir_fd >= 0)
        unlinkat(run->dir_fd, RESERVE_FILE, 0);
}

static int open_files(uni__run *run, bool resume, uni_error *err)
{
    int status;
    char *journal = uni__path_join(run->dir, "journal.jsonl", NULL),
         *results = uni__path_join(run->dir, "results.jsonl", NULL);
    run->logs_dir = uni__path_join(run->dir, "logs", NULL);
    if (!journal || !results || !run->logs_dir) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory for the paths of a run");
        goto done;
    }
    int logs = uni__make_owned_in(run->dir_fd, "logs", run->logs_dir, err);
    UNI_TRY_GOTO(logs, done);
    close(logs);
    UNI_TRY_GOTO(uni__journal_open_at(&run->journal, run->dir_fd, journal, "journal", err), done);
    UNI_TRY_GOTO(uni__results_writer_open_at(&run->writer, run->dir_fd, results, run->num_workers,
                                             resume, err),
                 done);
    keep_reserve(run);
done:
    free(journal);
    free(results);
    return status;
}

/* Several trainers may share a name: mkdir decides which one gets a number. `place` is a descriptor
 * of logdir. */
static int take_number(uni__run *run, int place, const char *logdir, uni_error *err)
{
    int number = highest_run(logdir) + 1, tries = 0;
    for (;; number++) {
        free(run->dir);
        if (asprintf(&run->dir, "%s/run_%03d", logdir, number) < 0) {
            run->dir = NULL;
            return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
        }
        const char *name = run->dir + strlen(logdir) + 1;
        if (mkdirat(place, name, 0700) == 0) {
            run->number = number;
            run->dir_fd = uni__open_owned_dir(place, name, run->dir, err);
            return run->dir_fd < 0 ? run->dir_fd : 0;
        }
        if (errno != EEXIST || ++tries > PLACE_TRIES) {
            int status =
                uni_error_set_errno(err, errno, "cannot make the run directory %s", run->dir);
            free(run->dir);
            run->dir = NULL;
            return status;
        }
    }
}

int uni__run_dir_make(uni__run *run, const char *logdir, uni_error *err)
{
    int place = uni__make_owned_dir(logdir, err);
    UNI_TRY(place);
    int status = take_number(run, place, logdir, err);
    close(place);
    UNI_TRY(status);
    const char *slash = strrchr(logdir, '/');
    if (asprintf(&run->id, "%s/run_%03d", slash ? slash + 1 : logdir, run->number) < 0) {
        run->id = NULL;
        return uni_error_set(err, UNI_ENOMEM, "no memory for a name");
    }
    status = open_files(run, false, err);
    if (status < 0 && uni__remove_tree(run->dir, NULL) < 0)
        uni__warn("%s could not be removed after the run could not begin", run->dir);
    return status;
}

typedef struct attempt_scan {
    int attempt;
    int64_t failures;
} attempt_scan;

static int scan_attempts(void *context, const uni_value *record, uni_error *err)
{
    attempt_scan *scan = context;
    int attempt = (int)uni_dict_get_int(record, "attempt", 0);
    if (attempt > scan->attempt)
        scan->attempt = attempt;
    return 0;
}

int uni__run_dir_reopen(uni__run *run, const char *dir, uni_error *err)
{
    uni_run *old = NULL;
    attempt_scan scan = { 0 };
    uni__journal_report report;
    UNI_TRY(uni__run_open_own(&old, dir, NULL, err));
    uni_run_status status_then = uni_run_status_of(old);
    run->dir = strdup(uni_run_dir(old));
    run->id = strdup(uni_run_id(old));
    run->number = (int)uni_dict_get_int(uni_run_description(old), "run", 1);
    run->created = uni_dict_get_float(uni_run_description(old), "created", uni__wall_seconds());
    uni__hosts_remember_lost(run->trainer, uni_dict_get(uni_run_description(old), "options"));
    uni_run_close(old);
    if (!run->dir || !run->id)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the paths of a run");
    if (status_then == UNI_RUN_RUNNING || status_then == UNI_RUN_STARTING)
        return uni_error_set(err, UNI_EBUSY,
                             "%s is still running; stop it first with `unisono stop %s`", run->id,
                             run->id);
    if (status_then == UNI_RUN_SUCCEEDED)
        return uni_error_set(err, UNI_ESTATE,
                             "%s has already ended well; start a new run, with from_checkpoint if "
                             "it should go on from there",
                             run->id);
    char *journal = uni__path_join(run->dir, "journal.jsonl", NULL);
    int status = journal ? uni__journal_read(journal, "journal", scan_attempts, &scan, &report, err)
                         : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    free(journal);
    UNI_TRY(status);
    UNI_TRY(uni__remove_temporaries(run->dir, err));
    run->attempt = scan.attempt;
    run->resumed = true;
    run->dir_fd = uni__open_owned_below(run->dir, err);
    UNI_TRY(run->dir_fd);
    return open_files(run, true, err);
}

/* ---- run.json and the journal ---- */

void uni__run_note(uni__run *run, const char *event, uni_value *record, bool durable)
{
    uni_error err = { 0 };
    uni_value *line = uni_value_dict();
    int status = 0;
    status |= uni_dict_take(line, "event", uni_value_string(event));
    status |= uni_dict_take(line, "time", uni_value_float(uni__wall_seconds()));
    status |= uni_dict_take(line, "attempt", uni_value_int(run->attempt));
    for (size_t i = 0; i < uni_dict_size(record); i++)
        status |= uni_dict_take(line, uni_dict_key_at(record, i),
                                uni_value_copy(uni_dict_value_at(record, i)));
    pthread_mutex_lock(&run->journal_lock);
    if (status < 0 || uni__journal_append(run->journal, line, durable, &err) < 0)
        uni__warn("the journal of %s lacks a record \"%s\": %s", run->id, event, err.message);
    pthread_mutex_unlock(&run->journal_lock);
    uni_value_free(line);
    uni_value_free(record);
}

static int describe_place(uni__run *run, uni_value *out)
{
    const uni_trainer *trainer = run->trainer;
    int status = 0;
    struct passwd *user = getpwuid(geteuid());
    status |= uni_dict_take(out, "unisono", uni_value_string(UNI_VERSION));
    status |= uni_dict_take(out, "hostname", uni_value_string(trainer->host.hostname));
    status |= uni_dict_take(out, "user", uni_value_string(user ? user->pw_name : "?"));
    uni_value *controller = uni_value_dict();
    status |= uni_dict_take(controller, "pid", uni_value_int(getpid()));
    status |= uni_dict_take(controller, "start_ticks",
                            uni_value_int((int64_t)uni__process_start(getpid())));
    status |= uni_dict_take(out, "controller", controller);
    status |= uni_dict_take(out, "backend", uni_value_string(trainer->options.backend));
    status |= uni_dict_take(out, "launcher", uni_value_string(trainer->options.launcher));
    status |= uni_dict_take(out, "num_workers", uni_value_int(run->num_workers));
    status |= uni_dict_take(out, "servers", uni_value_int(trainer->roles.servers));
    status |= uni_dict_take(out, "evaluators", uni_value_int(trainer->roles.evaluators));
    if (run->program)
        status |= uni_dict_take(out, "program", uni_value_copy(run->program));
    else
        status |= uni_dict_take(out, "function", uni_value_string(run->function));
    status |= uni_dict_take(out, "config", uni_value_copy(run->config));
    return status;
}

/* Of variables NAME=VALUE only the names: values may be secrets. */
static uni_value *names_of(const uni_value *variables)
{
    uni_value *names = uni_value_list();
    for (size_t i = 0; i < uni_list_size(variables); i++) {
        const char *word = uni_value_as_string(uni_list_get(variables, i), "");
        if (uni_list_take(names, uni_value_string_n(word, strcspn(word, "="))) < 0)
            break;
    }
    return names;
}

static uni_value *describe_options(const uni__run *run)
{
    const uni_trainer_options *asked = &run->trainer->options;
    uni_value *out = uni_value_dict();
    int status = 0;
    status |= uni_dict_take(
        out, "max_failures",
        uni_value_int(asked->max_failures == UNI_NO_RETRIES ? 0 : asked->max_failures));
    status |= uni_dict_take(out, "retry_errors", uni_value_bool(!asked->no_retry_errors));
    status |= uni_dict_take(out, "time_limit", uni_value_float(run->time_limit));
    status |= uni_dict_take(out, "progress_timeout", uni_value_float(run->progress_timeout));
    status |= uni_dict_take(out, "synchronous_checkpoints", uni_value_bool(run->synchronous));
    status |= uni_dict_take(out, "grace_seconds", uni_value_float(asked->grace_seconds));
    status |= uni_dict_take(out, "cpus_per_worker", uni_value_float(run->trainer->cpus_each));
    if (asked->memory_per_worker > 0)
        status |=
            uni_dict_take(out, "memory_per_worker", uni_value_float(asked->memory_per_worker));
    if (asked->use_gpu)
        status |= uni_dict_take(out, "use_gpu", uni_value_bool(true));
    char *directory = asked->working_directory ? realpath(asked->working_directory, NULL) : NULL;
    if (directory)
        status |= uni_dict_take(out, "working_directory", uni_value_string(directory));
    free(directory);
    status |= uni_dict_take(out, "environment", names_of(run->trainer->extra_environment));
    if (run->sink_names)
        status |= uni_dict_take(out, "sinks", uni_value_copy(run->sink_names));
    status |= uni__hosts_describe(run->trainer, out);
    status |= uni_dict_take(out, "num_to_keep", uni_value_int(run->policy.num_to_keep));
    if (run->score_attribute)
        status |= uni_dict_take(out, "score_attribute", uni_value_string(run->score_attribute));
    status |=
        uni_dict_take(out, "score_order",
                      uni_value_string(run->policy.score_order == UNI_SCORE_MIN ? "min" : "max"));
    if (status == 0)
        return out;
    uni_value_free(out);
    return NULL;
}

static uni_value *describe_workers(const uni__run *run)
{
    uni_value *list = uni_value_list();
    for (int i = 0; i < run->num_workers; i++) {
        uni_value *entry = uni_value_dict();
        int status = uni_dict_take(entry, "rank", uni_value_int(i));
        /* Before the run is the controller's, warm workers may just be starting: their pids are its business. */
        pid_t pid = run->group ? run->ranks[i].pid : 0;
        status |= uni_dict_take(entry, "pid", pid > 0 ? uni_value_int(pid) : uni_value_null());
        status |= uni_dict_take(entry, "host", uni_value_string(uni__rank_host(run, i)));
        uni__page *page = run->group ? uni__group_page(run->group, i) : NULL;
        double waited = page ? (double)atomic_load(&page->waited_ns) * 1e-9 : 0;
        status |= uni_dict_take(entry, "waited_s", uni_value_float(waited));
        if (uni_list_take(list, entry) < 0 || status < 0)
            break;
    }
    return list;
}

/* A path below the run directory without that part, or null. */
static uni_value *relative(const uni__run *run, const char *path)
{
    size_t length = strlen(run->dir);
    if (!path[0])
        return uni_value_null();
    return uni_value_string(
        strncmp(path, run->dir, length) == 0 && path[length] == '/' ? path + length + 1 : path);
}

static int describe_progress(uni__run *run, uni_value *out)
{
    int status = 0;
    int64_t iterations = 0;
    for (int i = 0; i < run->num_workers; i++)
        if (run->ranks[i].iteration > iterations)
            iterations = run->ranks[i].iteration;
    status |= uni_dict_take(out, "options", describe_options(run));
    status |= uni_dict_take(out, "attempt", uni_value_int(run->attempt));
    status |= uni_dict_take(out, "workers", describe_workers(run));
    status |= uni_dict_take(out, "cause", uni__cause_to_value(&run->cause));
    status |= uni_dict_take(out, "victims", uni_value_string(run->victims));
    uni_value *error = run->error.code ? uni_value_dict() : uni_value_null();
    if (run->error.code) {
        status |= uni_dict_take(error, "code", uni_value_string(uni_status_name(run->error.code)));
        status |= uni_dict_take(error, "message", uni_value_string(run->error.message));
    }
    status |= uni_dict_take(out, "error", error);
    status |= uni_dict_take(out, "latest_checkpoint", relative(run, run->latest_path));
    status |= uni_dict_take(out, "best_checkpoint", relative(run, run->best_path));
    status |= uni_dict_take(out, "iterations", uni_value_int(iterations));
    return status;
}

int uni__run_write_description(uni__run *run, const char *run_status, uni_error *err)
{
    uni_value *out = uni_value_dict();
    char *text = NULL, *path = NULL;
    size_t length = 0;
    bool finished = run->state == UNI__RUN_DONE;
    int status = 0;
    status |= uni_dict_take(out, "format", uni_value_string("unisono run"));
    status |= uni_dict_take(out, "version", uni_value_int(1));
    status |= uni_dict_take(out, "id", uni_value_string(run->id));
    status |= uni_dict_take(out, "name", uni_value_string_n(run->id, strcspn(run->id, "/")));
    status |= uni_dict_take(out, "run", uni_value_int(run->number));
    status |= uni_dict_take(out, "status", uni_value_string(run_status));
    status |= uni_dict_take(out, "created", uni_value_float(run->created));
    status |= uni_dict_take(out, "updated", uni_value_float(uni__wall_seconds()));
    status |= uni_dict_take(out, "finished",
                            finished ? uni_value_float(uni__wall_seconds()) : uni_value_null());
    status |= describe_place(run, out);
    status |= describe_progress(run, out);
    if (finished)
        status |=
            uni_dict_take(out, "exit_code",
                          uni_value_int(run->error.code ? uni__cause_exit_code(&run->cause) : 0));
    if (status < 0)
        status = uni_error_set(err, UNI_ENOMEM, "no memory to describe the run");
    if (status == 0)
        status = uni_json_write(&text, &length, out, UNI_JSON_INDENT, err);
    if (status == 0 && !(path = uni__path_join(run->dir, "run.json", NULL)))
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    if (status == 0)
        status = uni__write_file_at(run->dir_fd, path, text, length, false, err);
    uni_value_free(out);
    free(text);
    free(path);
    return status;
}

/* ---- logs ---- */

char *uni__run_log_path(const uni__run *run, int rank)
{
    char *path = NULL;
    return asprintf(&path, "%s/rank_%d.log", run->logs_dir, rank) < 0 ? NULL : path;
}

char *uni__run_log_tail(const uni__run *run, int rank, int lines)
{
    char *path = uni__run_log_path(run, rank), *text = NULL;
    struct stat info;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    free(path);
    if (fd < 0 || fstat(fd, &info) < 0) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    /* Only what this attempt wrote; a log that was cut since then is shorter than its start. */
    off_t start =
        info.st_size >= run->ranks[rank].log_start ? (off_t)run->ranks[rank].log_start : 0;
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

/* Older lines go to rank_N.log.1 once the file has passed the cap. Where the filesystem can cut a file's head off (ext4, xfs), no line is lost
 * or torn; elsewhere the file is copied and emptied, and lines written in between go missing. */
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
    if (fd >= 0 && uni__copy_file(path, making, &err) == 0) {
        off_t block = info.st_blksize > 0 ? info.st_blksize : 4096,
              head = info.st_size / block * block;
        int failed = 0;
        if (head > 0 && fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, head) == 0)
            failed = truncate(making, head); /* the rest of the copy is still in the file */
        else
            failed = ftruncate(fd, 0);
        /* Under its name only now: whoever reads along knows by it that the file begins anew where this one ends. */
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

/* A fast writer can get far beyond the cap between two looks, so the older part may be larger than it: cut to its newest `cap` bytes once those
 * who read along have had two seconds to take it. */
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

void uni__run_cap_logs(uni__run *run)
{
    for (int i = 0; i < run->num_workers; i++) {
        char *path = uni__run_log_path(run, i);
        if (path) {
            trim_older(path, run->trainer->options.log_cap);
            cap_log(path, run->trainer->options.log_cap);
        }
        free(path);
    }
}
