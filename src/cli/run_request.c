/*
 * run_request.c - turns the arguments of `unisono run` into the trainer's options: the config from
 * its file and --set, the checkpoint policy, and for --resume what run.json recorded.
 */
#include <math.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "train/shared.h"
#include "base/log.h"
#include "cli/format.h"
#include "cli/requeue.h"
#include "cli/run_command.h"
#include "cli/suggest.h"
#include "train/hosts_join.h"
#include "train/run_reader.h"
#include "train/variables.h"

/* ---- config ---- */

static uni_value *json_or_text(const char *text)
{
    uni_value *value = NULL;
    if (uni_json_read(&value, text, strlen(text), NULL) == 0)
        return value;
    return uni_value_string(text);
}

/* Dictionaries have one owner, so setting a nested value rebuilds the path: copy the child, set the
 * value in it, put it back. */
static int set_path(uni_value *dict, const char *path, size_t length, const char *text,
                    uni_error *err)
{
    char key[256];
    size_t part = strcspn(path, ".=");
    bool last = part >= length;
    part = last ? length : part;
    if (part == 0 || part >= sizeof key)
        return uni_error_set(err, UNI_EINVAL, "--set %.*s: a key is empty or too long", (int)length,
                             path);
    snprintf(key, sizeof key, "%.*s", (int)part, path);
    if (last)
        return uni_dict_take(dict, key, json_or_text(text)) < 0
                   ? uni_error_set(err, UNI_ENOMEM, "no memory for the config")
                   : 0;
    const uni_value *there = uni_dict_get(dict, key);
    if (there && uni_value_type_of(there) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL,
                             "--set: \"%s\" is a %s in the config, not a dictionary", key,
                             uni__value_type_name(uni_value_type_of(there)));
    uni_value *child = there ? uni_value_copy(there) : uni_value_dict();
    int status = child ? set_path(child, path + part + 1, length - part - 1, text, err)
                       : uni_error_set(err, UNI_ENOMEM, "no memory for the config");
    if (status < 0) {
        uni_value_free(child);
        return status;
    }
    return uni_dict_take(dict, key, child) < 0
               ? uni_error_set(err, UNI_ENOMEM, "no memory for the config")
               : 0;
}

int cli_config_set(uni_value *config, const char *word, uni_error *err)
{
    const char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return uni_error_set(err, UNI_EINVAL, "--set %s: write KEY=VALUE, for example lr=0.1",
                             word);
    return set_path(config, word, (size_t)(equals - word), equals + 1, err);
}

static int make_config(run_request *out, const run_values *values, uni_error *err)
{
    const uni_value *before =
        out->resumed ? uni_dict_get(uni_run_info_of(out->resumed)->description, "config") : NULL;
    if (values->config) {
        UNI_TRY(uni_json_read_file(&out->config, values->config, err));
        if (uni_value_type_of(out->config) != UNI_TYPE_DICT)
            return uni_error_set(err, UNI_EINVAL, "--config %s: expected a dictionary, got a %s",
                                 values->config,
                                 uni__value_type_name(uni_value_type_of(out->config)));
    } else {
        out->config = before ? uni_value_copy(before) : uni_value_dict();
    }
    if (!out->config)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the config");
    for (int i = 0; i < values->set.count; i++)
        UNI_TRY(cli_config_set(out->config, values->set.items[i], err));
    return 0;
}

/* ---- checkpoints ---- */

/* 5m, 90s, 500steps. A plain number could be either. */
static int read_every(run_request *out, const char *text, uni_error *err)
{
    char *unit = NULL;
    errno = 0;
    long long number = strtoll(text, &unit, 10);
    unit += strspn(unit, " ");
    bool steps = strcmp(unit, "steps") == 0 || strcmp(unit, "step") == 0;
    double seconds = 0;
    if (steps && number > 0 && errno == 0)
        out->policy.every_steps = number;
    else if (!steps && *unit && cli_parse_duration(text, &seconds) && seconds > 0)
        out->policy.every_seconds = seconds;
    else
        return uni_error_set(err, UNI_EINVAL,
                             "--checkpoint-every %s: must be a time like 90s or 5m, or a number of "
                             "steps like 500steps",
                             text);
    return 0;
}

static int make_policy(run_request *out, const run_values *values, uni_error *err)
{
    char *end = NULL;
    long number = strtol(values->keep, &end, 10);
    if (strcmp(values->keep, "all") == 0)
        out->policy.num_to_keep = UNI_KEEP_ALL;
    else if (strcmp(values->keep, "none") == 0)
        out->policy.num_to_keep = UNI_KEEP_NONE;
    else if (end == values->keep || *end || number < 1 || number > 1000000)
        return uni_error_set(err, UNI_EINVAL,
                             "--keep %s: must be a number (at least 1), all, or none",
                             values->keep);
    else
        out->policy.num_to_keep = (int)number;
    if (values->keep_best) {
        const char *colon = strrchr(values->keep_best, ':');
        bool smallest = colon && strcmp(colon, ":min") == 0;
        if (!colon || colon == values->keep_best || (!smallest && strcmp(colon, ":max") != 0))
            return uni_error_set(
                err, UNI_EINVAL,
                "--keep-best %s: write METRIC:min or METRIC:max, for example loss:min",
                values->keep_best);
        out->score = strndup(values->keep_best, (size_t)(colon - values->keep_best));
        if (!out->score)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the options");
        out->policy.score_attribute = out->score;
        out->policy.score_order = smallest ? UNI_SCORE_MIN : UNI_SCORE_MAX;
    }
    out->run.policy = &out->policy;
    if (values->keep_best && out->policy.num_to_keep == UNI_KEEP_NONE)
        return uni_error_set(err, UNI_EINVAL,
                             "--keep-best and --keep none exclude each other: without checkpoints "
                             "there is no best one");
    if (values->checkpoint_every && out->policy.num_to_keep == UNI_KEEP_NONE)
        return uni_error_set(err, UNI_EINVAL,
                             "--checkpoint-every and --keep none exclude each other: its "
                             "checkpoints are written to disk");
    return values->checkpoint_every ? read_every(out, values->checkpoint_every, err) : 0;
}

/* ---- resume ---- */

static int find_newest_resumable(void *context, uni_run *run, uni_error *err)
{
    (void)err;
    if (uni_run_is_live(run) || uni_run_info_of(run)->status == UNI_RUN_SUCCEEDED ||
        !uni_list_size(uni_dict_get(uni_run_info_of(run)->description, "program")) ||
        uni__run_check_owner(uni_run_info_of(run)->dir, NULL) <
            0) /* others' runs in a shared storage */
        return 0;
    *(char **)context = strdup(uni_run_info_of(run)->dir);
    return UNI_EEND;
}

static int open_resumed(run_request *out, const char *name, const run_values *values,
                        uni_error *err)
{
    char *newest = NULL;
    if (!name[0]) {
        int status = uni_run_list(values->storage, find_newest_resumable, &newest, err);
        if (status < 0 && status != UNI_EEND)
            return status;
        if (!newest)
            return uni_error_set(err, UNI_EINVAL,
                                 "--resume: no stopped, failed or interrupted run found; `unisono "
                                 "ls` lists all runs");
        name = newest;
    }
    int status = uni__run_open_own(&out->resumed, name, values->storage, err);
    free(newest);
    if (status < 0)
        return status;
    if (uni_run_is_live(out->resumed))
        return uni_error_set(err, UNI_EBUSY,
                             "--resume: %s is still running; follow it with `unisono logs -f %s`",
                             uni_run_info_of(out->resumed)->id, uni_run_info_of(out->resumed)->id);
    if (uni_run_info_of(out->resumed)->status == UNI_RUN_SUCCEEDED)
        return uni_error_set(err, UNI_EINVAL,
                             "--resume: %s succeeded, so there is nothing to resume; "
                             "--from-checkpoint %s starts a new run where it ended",
                             uni_run_info_of(out->resumed)->id, uni_run_info_of(out->resumed)->id);
    out->run.resume_run = uni_run_info_of(out->resumed)->dir;
    return 0;
}

static void remember_hosts(run_request *out, const cli_parsed *parsed)
{
    const uni_value *about = uni_run_info_of(out->resumed)->description;
    const uni_value *options = uni_dict_get(about, "options");
    bool foreign = uni__hosts_foreign_rank() >= 0;
    const char *launcher = uni_dict_get_string(about, "launcher", "local");
    if (!cli_given(parsed, "launcher") && !foreign &&
        !(out->trainer.hosts && strcmp(launcher, "local") == 0))
        out->trainer.launcher = launcher;
    if (strcmp(out->trainer.launcher, "local") == 0)
        return;
    if (!cli_given(parsed, "hosts") && !foreign && strcmp(out->trainer.launcher, "slurm") != 0)
        out->trainer.hosts = uni_dict_get_string(options, "hosts", NULL);
    if (!cli_given(parsed, "interface"))
        out->trainer.interface = uni_dict_get_string(options, "interface", NULL);
    if (!cli_given(parsed, "transport"))
        out->trainer.transport = uni_dict_get_string(options, "transport", NULL);
    if (!cli_given(parsed, "encrypt"))
        out->trainer.encrypt = uni_dict_get_bool(options, "encrypt", false);
    if (!cli_given(parsed, "no-seal"))
        out->trainer.no_seal = uni_dict_get_bool(options, "no_seal", false);
    if (!cli_given(parsed, "secret-file"))
        out->trainer.secret_file = uni_dict_get_string(options, "secret_file", NULL);
    if (!cli_given(parsed, "min-workers"))
        out->trainer.min_workers = (int)uni_dict_get_int(options, "min_workers", 0);
}

/* Restores the sinks that --sink can name; those that only show something on the terminal are
 * created anew. */
static void remember_sinks(run_request *out, const uni_value *options)
{
    const uni_value *names = uni_dict_get(options, "sinks");
    if (!names)
        return;
    for (size_t i = 0; i < uni_list_size(names); i++) {
        const char *name = uni_value_as_string(uni_list_get(names, i), "");
        if (cli_is_one_of(name, CLI_SINKS))
            uni__text_add_format(&out->remembered_sinks, "%s%s",
                                 out->remembered_sinks.size ? "," : "", name);
    }
    out->sink = out->remembered_sinks.size ? out->remembered_sinks.data : "none";
}

/* Environment values are not recorded, because they may be secrets. */
static void miss_environment(const uni_value *options, const cli_parsed *parsed)
{
    const uni_value *names = uni_dict_get(options, "environment");
    uni__text missing = { 0 };
    for (size_t i = 0;
         i < uni_list_size(names) && !cli_given(parsed, "env") && !cli_given(parsed, "env-file");
         i++)
        uni__text_add_format(&missing, "%s%s", missing.size ? ", " : "",
                             uni_value_as_string(uni_list_get(names, i), "?"));
    if (missing.size)
        uni__warn("--resume: values of --env are not recorded because they may be secrets; give "
                  "them again if the program needs them: %s",
                  missing.data);
    uni__text_free(&missing);
}

static void remember_resources(run_request *out, const cli_parsed *parsed)
{
    const uni_value *options = uni_dict_get(uni_run_info_of(out->resumed)->description, "options");
    if (!cli_given(parsed, "memory"))
        out->trainer.memory_per_worker = uni_dict_get_float(options, "memory_per_worker", 0);
    if (!cli_given(parsed, "address-space"))
        out->trainer.address_space_limit = uni_dict_get_float(options, "address_space_limit", 0);
    if (!cli_given(parsed, "use-gpu"))
        out->trainer.use_gpu = uni_dict_get_bool(options, "use_gpu", false);
    if (!cli_given(parsed, "chdir"))
        out->trainer.working_directory = uni_dict_get_string(options, "working_directory", NULL);
    if (!cli_given(parsed, "time-limit"))
        out->run.time_limit = uni_dict_get_float(options, "time_limit", 0);
    if (!cli_given(parsed, "sink"))
        remember_sinks(out, options);
    miss_environment(options, parsed);
}

/* Recorded options apply unless the command line sets them. */
static void remember(run_request *out, const cli_parsed *parsed)
{
    const uni_value *about = uni_run_info_of(out->resumed)->description;
    const uni_value *options = uni_dict_get(about, "options");
    /* num_workers in the file counts all processes. */
    int servers = (int)uni_dict_get_int(about, "servers", 0),
        evaluators = (int)uni_dict_get_int(about, "evaluators", 0);
    if (!cli_given(parsed, "num-workers"))
        out->trainer.num_workers =
            (int)uni_dict_get_int(options, "num_workers",
                                  uni_dict_get_int(about, "num_workers", 1)) -
            servers - evaluators - (servers > 0);
    if (!cli_given(parsed, "workers") && !cli_given(parsed, "min-workers") &&
        uni_dict_get(options, "max_workers")) {
        out->trainer.min_workers = (int)uni_dict_get_int(options, "min_workers", 0);
        out->trainer.max_workers = (int)uni_dict_get_int(options, "max_workers", 0);
        if (cli_given(parsed, "num-workers") && out->trainer.num_workers > out->trainer.max_workers)
            out->trainer.max_workers = out->trainer.num_workers;
    }
    if (!cli_given(parsed, "servers"))
        out->trainer.servers = servers;
    if (!cli_given(parsed, "evaluators"))
        out->trainer.evaluators = evaluators;
    if (!cli_given(parsed, "backend"))
        out->trainer.backend = uni_dict_get_string(about, "backend", "none");
    if (!cli_given(parsed, "max-failures")) {
        /* The file has 0 for none; in the options 0 would mean the default. */
        int64_t failures = uni_dict_get_int(options, "max_failures", out->trainer.max_failures);
        out->trainer.max_failures = failures == 0 ? UNI_NO_RETRIES : (int)failures;
    }
    if (!cli_given(parsed, "grace"))
        out->trainer.grace_seconds =
            uni_dict_get_float(options, "grace_seconds", out->trainer.grace_seconds);
    if (!cli_given(parsed, "keep"))
        out->policy.num_to_keep = (int)uni_dict_get_int(options, "num_to_keep", UNI_KEEP_ALL);
    if (!cli_given(parsed, "keep-best")) {
        out->policy.score_attribute = uni_dict_get_string(options, "score_attribute", NULL);
        out->policy.score_order =
            strcmp(uni_dict_get_string(options, "score_order", "max"), "min") == 0 ? UNI_SCORE_MIN
                                                                                   : UNI_SCORE_MAX;
    }
    if (!cli_given(parsed, "checkpoint-every")) {
        out->policy.every_steps = uni_dict_get_int(options, "every_steps", 0);
        out->policy.every_seconds = uni_dict_get_float(options, "every_seconds", 0);
    }
    if (!cli_given(parsed, "no-retry-errors"))
        out->trainer.no_retry_errors = !uni_dict_get_bool(options, "retry_errors", true);
    if (!cli_given(parsed, "progress-timeout"))
        out->run.progress_timeout = uni_dict_get_float(options, "progress_timeout", 0);
    if (!cli_given(parsed, "sync-checkpoints"))
        out->run.synchronous_checkpoints =
            uni_dict_get_bool(options, "synchronous_checkpoints", false);
    out->trainer.name = uni_dict_get_string(about, "name", NULL);
}

/* ---- the whole request ---- */

static int make_program(run_request *out, const cli_parsed *parsed, uni_error *err)
{
    const uni_value *before =
        out->resumed ? uni_dict_get(uni_run_info_of(out->resumed)->description, "program") : NULL;
    size_t count = parsed->num_args ? (size_t)parsed->num_args : uni_list_size(before);
    if (count == 0 && out->resumed)
        return uni_error_set(err, UNI_EINVAL,
                             "%s ran a train function, not a program: start the program that "
                             "contains it again, or give a program after --",
                             uni_run_info_of(out->resumed)->id);
    if (count == 0)
        return uni_error_set(err, UNI_EINVAL,
                             "no program given; for example: unisono run -n 2 -- python3 train.py");
    out->program = calloc(count + 1, sizeof *out->program);
    if (!out->program)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the program's words");
    for (size_t i = 0; i < count; i++)
        out->program[i] =
            parsed->num_args ? parsed->args[i] : uni_value_as_string(uni_list_get(before, i), "");
    out->run.program = out->program;
    return 0;
}

/* The path of a checkpoint or a run, or the name of a run. */
static int make_from(run_request *out, const run_values *values, uni_error *err)
{
    uni_run *run = NULL;
    if (!values->from_checkpoint || out->own_dir)
        return 0;
    if (values->resume)
        return uni_error_set(err, UNI_EINVAL,
                             "--resume and --from-checkpoint are mutually exclusive: the first "
                             "continues the old run, the second starts a new one");
    if (uni_run_open(&run, values->from_checkpoint, values->storage, NULL) == 0)
        out->from_dir = strdup(uni_run_info_of(run)->dir);
    else
        out->from_dir = strdup(values->from_checkpoint);
    uni_run_close(run);
    out->run.from_checkpoint = out->from_dir;
    return out->from_dir ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
}

/* 0 is not "the default": that is said by leaving the option out. */
static int check_zeros(const cli_parsed *parsed, uni_error *err)
{
    const run_values *values = parsed->values;
    const struct {
        const char *name, *without;
        double value;
    } numbers[] = {
        { "cpus", "for an equal share", values->cpus },
        { "address-space", "for no limit", values->address_space },
        { "time-limit", "for no limit", values->time_limit },
        { "progress-timeout", "for none", values->progress_timeout },
        { "log-cap", "for 64M", values->log_cap },
        { "min-workers", "for as many as requested", (double)values->min_workers },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (cli_given(parsed, numbers[i].name) && !(numbers[i].value > 0))
            return uni_error_set(err, UNI_EINVAL,
                                 "--%s %g: must be greater than 0 (leave it out %s)",
                                 numbers[i].name, numbers[i].value, numbers[i].without);
    return 0;
}

static int check_numbers(const run_values *values, uni_error *err)
{
    if (values->num_workers > 65536)
        return uni_error_set(err, UNI_EINVAL, "--num-workers %lld: must be at most 65536",
                             values->num_workers);
    if (values->num_workers < 1)
        return uni_error_set(err, UNI_EINVAL, "--num-workers %lld: must be at least 1",
                             values->num_workers);
    if (values->servers < 0 || values->servers > 4096)
        return uni_error_set(err, UNI_EINVAL, "--servers %lld: must be from 0 to 4096",
                             values->servers);
    if (values->evaluators < 0 || values->evaluators > 1)
        return uni_error_set(err, UNI_EINVAL, "--evaluators %lld: must be 0 or 1",
                             values->evaluators);
    if (values->max_failures < -1 || values->max_failures > 1000000)
        return uni_error_set(err, UNI_EINVAL,
                             "--max-failures %lld: must be from -1 (without limit) to 1000000",
                             values->max_failures);
    if (!isfinite(values->cpus))
        return uni_error_set(err, UNI_EINVAL, "--cpus %g: must be a number of CPUs", values->cpus);
    if (values->min_workers > 65536)
        return uni_error_set(err, UNI_EINVAL, "--min-workers %lld: must be at most 65536",
                             values->min_workers);
    return 0;
}

/* --workers MIN:MAX. */
static int read_workers(run_request *out, const cli_parsed *parsed, uni_error *err)
{
    const run_values *values = parsed->values;
    int least = 0, most = 0, end = 0;
    if (!values->workers)
        return 0;
    if (cli_given(parsed, "min-workers"))
        return uni_error_set(err, UNI_EINVAL,
                             "--workers MIN:MAX has the minimum already: leave "
                             "--min-workers out");
    if (sscanf(values->workers, "%d:%d%n", &least, &most, &end) != 2 || values->workers[end] ||
        least < 1 || most < least)
        return uni_error_set(err, UNI_EINVAL,
                             "--workers %s: write MIN:MAX, two numbers from 1, the larger last",
                             values->workers);
    out->trainer.min_workers = least;
    out->trainer.max_workers = most;
    if (!cli_given(parsed, "num-workers"))
        out->trainer.num_workers = most;
    return 0;
}

/* All users can read the command lines of all processes. */
static void warn_visible(const run_values *values)
{
    for (int i = 0; i < values->env.count; i++) {
        const char *word = values->env.items[i];
        int name = (int)strcspn(word, "=");
        if (word[name] && uni__variable_is_secret(word))
            uni__warn("--env %.*s=...: other users can see the value with `ps`; use --env %.*s to "
                      "take it from the environment, or --env-file",
                      name, word, name, word);
    }
}

int cli_run_request(run_request *out, const cli_parsed *parsed, uni_error *err)
{
    const run_values *values = parsed->values;
    *out = (run_request){ 0 };
    UNI_TRY(check_zeros(parsed, err));
    UNI_TRY(check_numbers(values, err));
    warn_visible(values);
    out->trainer = (uni_trainer_options){
        .size = sizeof out->trainer,
        .num_workers = (int)values->num_workers,
        .servers = (int)values->servers,
        .evaluators = (int)values->evaluators,
        .backend = values->backend,
        .launcher = values->launcher,
        .hosts = values->hosts,
        .interface = values->interface,
        .transport = values->transport,
        .encrypt = values->encrypt,
        .no_seal = values->no_seal,
        .secret_file = values->secret_file,
        .min_workers = (int)values->min_workers,
        .cpus_per_worker = values->cpus,
        .memory_per_worker = values->memory,
        .address_space_limit = values->address_space,
        .use_gpu = values->use_gpu,
        .name = values->name,
        .storage_path = values->storage,
        .environment = values->env.items,
        .environment_file = values->env_file,
        .working_directory = values->chdir,
        .max_failures = values->max_failures == 0 ? UNI_NO_RETRIES : (int)values->max_failures,
        .no_retry_errors = values->no_retry_errors,
        .grace_seconds = values->grace > 0 ? values->grace : UNI_GRACE_NONE,
        .handle_signals = true,
        .log_cap = (uint64_t)values->log_cap,
    };
    const char *in_environment = getenv("UNISONO_HOSTS");
    bool foreign = uni__hosts_foreign_rank() >= 0;
    if (foreign && !cli_given(parsed, "launcher"))
        out->trainer.launcher = "mpi";
    else if ((values->hosts || (in_environment && in_environment[0])) &&
             !cli_given(parsed, "launcher"))
        out->trainer.launcher = "ssh";
    /* 0: as many workers as there are slots. */
    if ((foreign || strcmp(out->trainer.launcher, "local") != 0) &&
        !cli_given(parsed, "num-workers"))
        out->trainer.num_workers = 0;
    UNI_TRY(read_workers(out, parsed, err));
    out->run.size = sizeof out->run;
    out->run.time_limit = values->time_limit;
    out->run.progress_timeout = values->progress_timeout;
    out->run.synchronous_checkpoints = values->sync_checkpoints;
    UNI_TRY(make_policy(out, values, err));
    if (values->requeue && values->resume)
        return uni_error_set(err, UNI_EINVAL,
                             "--requeue and --resume are mutually exclusive: a job that comes back "
                             "from the queue resumes its own run");
    if (values->requeue)
        UNI_TRY(cli_requeue_find(&out->own_dir, &out->done, values->storage, err));
    const char *resume = out->own_dir ? out->own_dir : values->resume;
    if (resume) {
        UNI_TRY(open_resumed(out, resume, values, err));
        remember(out, parsed);
        remember_hosts(out, parsed);
        remember_resources(out, parsed);
    }
    UNI_TRY(make_from(out, values, err));
    UNI_TRY(make_program(out, parsed, err));
    UNI_TRY(make_config(out, values, err));
    out->run.config = out->config;
    return 0;
}

void cli_run_request_free(run_request *request)
{
    uni_value_free(request->config);
    uni_run_close(request->resumed);
    free(request->program);
    free(request->from_dir);
    uni__text_free(&request->remembered_sinks);
    free(request->score);
    free(request->own_dir);
}
