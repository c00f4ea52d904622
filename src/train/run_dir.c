/*
 * run_dir.c - the run directory of a run: making and reopening it, and run.json (docs/formats.md).
 *
 * Thread: making and reopening by the user's thread before the run begins; the rest by the
 * controller thread, uni__run_note also by the persist thread.
 */
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <unisono/version.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "train/hosts_internal.h"
#include "train/run_owner.h"
#include "train/run_reader.h"

static int open_results(uni__run *run, bool resume, uni_error *err)
{
    char *path = uni__path_join(run->places.dir, "results.jsonl", NULL);
    int status = path ? uni__results_writer_open_at(&run->writer, run->places.dir_fd, path,
                                                    run->num_workers, resume, err)
                      : uni_error_set(err, UNI_ENOMEM, "no memory for the paths of a run");
    free(path);
    return status;
}

int uni__run_dir_make(uni__run *run, const char *logdir, uni_error *err)
{
    int status = uni__places_make(&run->places, logdir, run->num_workers, err);
    if (status == 0)
        status = open_results(run, false, err);
    if (status < 0 && run->places.dir && uni__remove_tree(run->places.dir, NULL) < 0)
        uni__warn("%s could not be removed after the run could not begin", run->places.dir);
    return status;
}

static int scan_attempts(void *context, const uni_value *record, uni_error *err)
{
    int *highest = context, attempt = (int)uni_dict_get_int(record, "attempt", 0);
    if (attempt > *highest)
        *highest = attempt;
    return 0;
}

int uni__run_dir_reopen(uni__run *run, const char *dir, uni_error *err)
{
    uni_run *old = NULL;
    int attempt = 0;
    uni__journal_report report;
    UNI_TRY(uni__run_open_own(&old, dir, NULL, err));
    const uni_run_info *info = uni_run_info_of(old);
    uni_run_status status_then = info->status;
    run->places.dir = strdup(info->dir);
    run->places.id = strdup(info->id);
    run->places.number = (int)uni_dict_get_int(info->description, "run", 1);
    run->created = uni_dict_get_float(info->description, "created", uni__wall_seconds());
    uni__hosts_remember_lost(run->trainer, uni_dict_get(info->description, "options"));
    uni_run_close(old);
    if (!run->places.dir || !run->places.id)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the paths of a run");
    if (status_then == UNI_RUN_RUNNING || status_then == UNI_RUN_STARTING)
        return uni_error_set(err, UNI_EBUSY,
                             "%s is still running; stop it first with `unisono stop %s`",
                             run->places.id, run->places.id);
    if (status_then == UNI_RUN_SUCCEEDED)
        return uni_error_set(err, UNI_ESTATE,
                             "%s has already ended well; start a new run, with from_checkpoint if "
                             "it should go on from there",
                             run->places.id);
    char *journal = uni__path_join(run->places.dir, "journal.jsonl", NULL);
    int status = journal
                     ? uni__journal_read(journal, "journal", scan_attempts, &attempt, &report, err)
                     : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    free(journal);
    UNI_TRY(status);
    run->attempt.number = attempt;
    run->resumed = true;
    UNI_TRY(uni__places_reopen(&run->places, run->num_workers, err));
    return open_results(run, true, err);
}

/* ---- run.json and the journal ---- */

void uni__run_note(uni__run *run, const char *event, uni_value *record, bool durable)
{
    uni__places_note(&run->places, run->attempt.number, event, record, durable);
}

static int describe_place(uni__run *run, uni_value *out)
{
    const uni_trainer *trainer = run->trainer;
    const uni__request *asked = &run->request;
    struct passwd *user = getpwuid(geteuid());
    uni_value *controller =
        UNI__DICT({ "pid", uni_value_int(getpid()) },
                  { "start_ticks", uni_value_int((int64_t)uni__process_start(getpid())) });
    return UNI__DICT_ADD(
        out, { "unisono", uni_value_string(UNI_VERSION) },
        { "hostname", uni_value_string(trainer->host.hostname) },
        { "user", uni_value_string(user ? user->pw_name : "?") }, { "controller", controller },
        { "backend", uni_value_string(trainer->options.backend) },
        { "launcher", uni_value_string(trainer->options.launcher) },
        { "num_workers", uni_value_int(run->num_workers) },
        { "servers", uni_value_int(trainer->roles.servers) },
        { "evaluators", uni_value_int(trainer->roles.evaluators) },
        { asked->program ? "program" : "function",
          asked->program ? uni_value_copy(asked->program) : uni_value_string(asked->function) },
        { "config", uni_value_copy(asked->config) });
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
    const uni_checkpoint_policy *policy = &run->request.policy;
    int most = asked->max_failures == UNI_NO_RETRIES ? 0 : asked->max_failures, status = 0;
    uni_value *out =
        UNI__DICT({ "max_failures", uni_value_int(most) },
                  { "retry_errors", uni_value_bool(!asked->no_retry_errors) },
                  { "time_limit", uni_value_float(run->request.time_limit) },
                  { "progress_timeout", uni_value_float(run->request.progress_timeout) },
                  { "synchronous_checkpoints", uni_value_bool(run->request.synchronous) },
                  { "grace_seconds", uni_value_float(asked->grace_seconds) },
                  { "cpus_per_worker", uni_value_float(run->trainer->cpus_each) });
    if (asked->memory_per_worker > 0)
        status |=
            uni_dict_take(out, "memory_per_worker", uni_value_float(asked->memory_per_worker));
    if (asked->address_space_limit > 0)
        status |=
            uni_dict_take(out, "address_space_limit", uni_value_float(asked->address_space_limit));
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
    if (run->trainer->min_workers > 0)
        status |= uni_dict_take(out, "min_workers", uni_value_int(run->trainer->min_workers)) |
                  uni_dict_take(out, "max_workers", uni_value_int(run->num_workers)) |
                  uni_dict_take(out, "num_workers", uni_value_int(run->target));
    const char *job = getenv("SLURM_JOB_ID"); /* a requeued job finds its run by it */
    if (job)
        status |= uni_dict_take(out, "slurm_job", uni_value_string(job));
    status |= uni_dict_take(out, "num_to_keep", uni_value_int(policy->num_to_keep));
    if (policy->score_attribute)
        status |= uni_dict_take(out, "score_attribute", uni_value_string(policy->score_attribute));
    if (policy->every_steps > 0)
        status |= uni_dict_take(out, "every_steps", uni_value_int(policy->every_steps));
    if (policy->every_seconds > 0)
        status |= uni_dict_take(out, "every_seconds", uni_value_float(policy->every_seconds));
    bool least = policy->score_order == UNI_SCORE_MIN;
    status |= uni_dict_take(out, "score_order", uni_value_string(least ? "min" : "max"));
    if (status == 0)
        return out;
    uni_value_free(out);
    return NULL;
}

static uni_value *describe_workers(const uni__run *run)
{
    uni_value *list = uni_value_list();
    for (int i = 0; i < run->num_workers; i++) {
        if (run->ranks[i].away && run->ranks[i].homeless)
            continue; /* there is no host for it */
        /* Before the run is the controller's, warm workers may just be starting. */
        int pid = run->group ? run->ranks[i].worker->pid : 0;
        uni__page *page = run->group ? uni__group_page(run->group, i) : NULL;
        double waited = page ? (double)atomic_load(&page->waited_ns) * 1e-9 : 0;
        uni_value *entry = UNI__DICT({ "rank", uni_value_int(i) },
                                     { "pid", pid > 0 ? uni_value_int(pid) : uni_value_null() },
                                     { "host", uni_value_string(uni__rank_host(run, i)) },
                                     { "waited_s", uni_value_float(waited) });
        if (uni_list_take(list, entry) < 0)
            break;
    }
    return list;
}

/* A path below the run directory without that part, or null. */
static uni_value *relative(const uni__run *run, const char *path)
{
    size_t length = strlen(run->places.dir);
    if (!path[0])
        return uni_value_null();
    return uni_value_string(strncmp(path, run->places.dir, length) == 0 && path[length] == '/'
                                ? path + length + 1
                                : path);
}

static int describe_progress(uni__run *run, uni_value *out)
{
    const uni__outcome *outcome = &run->outcome;
    int64_t iterations = 0;
    for (int i = 0; i < run->num_workers; i++)
        if (run->ranks[i].iteration > iterations)
            iterations = run->ranks[i].iteration;
    uni_value *error =
        outcome->error.code
            ? UNI__DICT({ "code", uni_value_string(uni_status_name(outcome->error.code)) },
                        { "message", uni_value_string(outcome->error.message) })
            : uni_value_null();
    return UNI__DICT_ADD(
        out, { "options", describe_options(run) },
        { "attempt", uni_value_int(run->attempt.number) },
        { "replaced", uni_value_int(outcome->replaced) },
        { "members", uni_value_int(uni__run_workers(run)) },
        { "target", uni_value_int(run->target) },
        { "fixed_by",
          run->attempt.fixed_by ? uni_value_string(run->attempt.fixed_by) : uni_value_null() },
        { "workers", describe_workers(run) }, { "cause", uni__cause_to_value(&outcome->cause) },
        { "victims", uni_value_string(run->attempt.victims) }, { "error", error },
        { "latest_checkpoint", relative(run, outcome->latest_path) },
        { "best_checkpoint", relative(run, outcome->best_path) },
        { "iterations", uni_value_int(iterations) });
}

int uni__run_write_description(uni__run *run, const char *run_status, uni_error *err)
{
    char *text = NULL, *path = NULL;
    const char *id = run->places.id;
    size_t length = 0;
    bool finished = run->state == UNI__RUN_DONE;
    double now = uni__wall_seconds();
    uni_value *out = UNI__DICT(
        { "format", uni_value_string("unisono run") }, { "version", uni_value_int(1) },
        { "id", uni_value_string(id) }, { "name", uni_value_string_n(id, strcspn(id, "/")) },
        { "run", uni_value_int(run->places.number) }, { "status", uni_value_string(run_status) },
        { "created", uni_value_float(run->created) }, { "updated", uni_value_float(now) },
        { "finished", finished ? uni_value_float(now) : uni_value_null() });
    int status = describe_place(run, out) | describe_progress(run, out);
    int code = run->outcome.error.code ? uni__cause_exit_code(&run->outcome.cause) : 0;
    if (finished)
        status |= uni_dict_take(out, "exit_code", uni_value_int(code));
    if (status < 0)
        status = uni_error_set(err, UNI_ENOMEM, "no memory to describe the run");
    if (status == 0)
        status = uni_json_write(&text, &length, out, UNI_JSON_INDENT, err);
    if (status == 0 && !(path = uni__path_join(run->places.dir, "run.json", NULL)))
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    if (status == 0)
        status = uni__write_file_at(run->places.dir_fd, path, text, length, false, err);
    uni_value_free(out);
    free(text);
    free(path);
    return status;
}

/* ---- logs ---- */

char *uni__run_log_tail(const uni__run *run, int rank, int lines)
{
    return uni__places_log_tail(&run->places, rank, run->ranks[rank].log_start, lines);
}

void uni__run_cap_logs(uni__run *run)
{
    for (int i = 0; i < run->num_workers; i++)
        uni__places_cap_log(&run->places, i, run->trainer->options.log_cap);
}
