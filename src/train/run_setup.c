/*
 * run_setup.c - making a run and taking it apart again, on the user's thread.
 *
 * Order of making: options, directory, journal and results, checkpoints, ports, sinks. Taking apart is the reverse: first the sinks get
 * everything, then the files are closed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/dict.h"
#include "train/trainer_internal.h"

static void run_free(uni__run *run)
{
    uni__results_writer_close(run->writer);
    uni__journal_close(run->journal);
    uni__ports_release(&run->ports);
    uni__cause_clear(&run->cause);
    uni__cause_clear(&run->previous_cause);
    uni_value_free(run->program);
    uni_value_free(run->config);
    uni_value_free(run->attachment);
    uni_value_free(run->datasets);
    uni_value_free(run->data_states);
    uni_value_free(run->from_dict);
    uni_value_free(run->kept);
    if (run->resume_fd >= 0)
        close(run->resume_fd);
    free(run->function);
    free(run->exe);
    free(run->score_attribute);
    uni_value_free(run->sink_names);
    free(run->from_checkpoint);
    free(run->id);
    if (run->dir && !run->done) /* it never began */
        uni__run_release_reserve(run);
    if (run->dir_fd >= 0)
        close(run->dir_fd);
    free(run->dir);
    free(run->logs_dir);
    free(run->staging_dir);
    pthread_mutex_destroy(&run->journal_lock);
    pthread_mutex_destroy(&run->done_lock);
    pthread_cond_destroy(&run->done_cond);
    free(run);
}

/* ---- what is asked ---- */

static int copy_function(uni__run *run, const uni_run_options *asked, uni_error *err)
{
    uni_trainer *trainer = run->trainer;
    char known[512] = "";
    if (!trainer->worker_argv)
        return uni_error_set(err, UNI_ESTATE,
                             "the function \"%s\" cannot run in workers, because this trainer does "
                             "not know the program: let main be "
                             "`return uni_main(argc, argv, functions, driver)` and give the "
                             "trainer the program that the driver gets",
                             asked->function);
    const uni_function *at = trainer->functions;
    for (; at && at->name && strcmp(at->name, asked->function) != 0; at++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", known[0] ? ", " : "",
                 at->name);
    if (at && !at->name)
        return uni_error_set(
            err, UNI_ENOTFOUND,
            "there is no train function \"%s\" in the list given to uni_main; there are: %s",
            asked->function, known[0] ? known : "none");
    run->function = strdup(asked->function);
    return run->function ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a run");
}

static int copy_program(uni__run *run, const uni_run_options *asked, uni_error *err)
{
    UNI_TRY(uni__find_program(asked->program[0], &run->exe, err));
    run->program = uni_value_list();
    for (const char *const *word = asked->program; *word; word++)
        if (uni_list_take(run->program, uni_value_string(*word)) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the program's arguments");
    return 0;
}

static int copy_start(uni__run *run, const uni_run_options *asked, uni_error *err)
{
    if (asked->from_checkpoint && asked->from_dict)
        return uni_error_set(err, UNI_EINVAL, "from_checkpoint and from_dict exclude each other");
    if (asked->from_dict) {
        size_t size;
        UNI_TRY(uni__dict_encoded_size(asked->from_dict, &size, err));
        run->resume_fd = memfd_create("unisono-resume", MFD_CLOEXEC);
        if (run->resume_fd < 0 || ftruncate(run->resume_fd, (off_t)size) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the dictionary to start from");
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, run->resume_fd, 0);
        if (memory == MAP_FAILED)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the dictionary to start from");
        int status = uni__dict_encode(asked->from_dict, memory, size, err);
        munmap(memory, size);
        return status;
    }
    if (!asked->from_checkpoint)
        return 0;
    uni_checkpoint *checkpoint = NULL;
    char *path = uni__path_absolute(asked->from_checkpoint, err);
    if (!path)
        return UNI_EINVAL;
    char *manifest = uni__path_join(path, ".unisono-manifest.json", NULL);
    bool is_checkpoint = manifest && uni__path_exists(manifest);
    free(manifest);
    int status;
    if (!uni__path_is_dir(path))
        status = uni_error_set(err, UNI_ENOTFOUND, "the checkpoint to start from, %s, is not there",
                               path);
    else if (is_checkpoint)
        status = uni_checkpoint_open(&checkpoint, path, err);
    else
        status = uni_checkpoint_open_latest(&checkpoint, path, err);
    if (status == 0)
        status = uni_checkpoint_verify(checkpoint, err);
    if (status == 0 && !(run->from_checkpoint = strdup(uni_checkpoint_path(checkpoint))))
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    uni_checkpoint_close(checkpoint);
    free(path);
    return status < 0 ? uni_error_prefix(err, "cannot start from %s", asked->from_checkpoint) : 0;
}

/* Field by field: what the run says, otherwise what the trainer's defaults say. */
static uni_run_options with_defaults(const uni_run_options *asked, const uni_run_options *defaults)
{
    static const uni_run_options none = { 0 };
    uni_run_options out = asked ? *asked : none;
    if (!defaults)
        return out;
    if (!out.function && !out.program) {
        out.function = defaults->function;
        out.program = defaults->program;
    }
    if (!out.config)
        out.config = defaults->config;
    if (!out.attachment)
        out.attachment = defaults->attachment;
    if (!out.datasets)
        out.datasets = defaults->datasets;
    if (!out.num_sinks) {
        out.sinks = defaults->sinks;
        out.num_sinks = defaults->num_sinks;
    }
    if (!out.policy)
        out.policy = defaults->policy;
    if (!out.from_checkpoint && !out.from_dict) {
        out.from_checkpoint = defaults->from_checkpoint;
        out.from_dict = defaults->from_dict;
    }
    if (!out.time_limit)
        out.time_limit = defaults->time_limit;
    if (!out.progress_timeout)
        out.progress_timeout = defaults->progress_timeout;
    out.v1_checkpoints |= defaults->v1_checkpoints;
    out.synchronous_checkpoints |= defaults->synchronous_checkpoints;
    return out;
}

static int copy_options(uni__run *run, const uni_run_options *asked, uni_error *err)
{
    if (!asked->function == !(asked->program && asked->program[0]))
        return uni_error_set(err, UNI_EINVAL, "a run needs either a function or a program");
    UNI_TRY(asked->function ? copy_function(run, asked, err) : copy_program(run, asked, err));
    const uni_value *config = asked->config;
    if (config && uni_value_type_of(config) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL, "config must be a dictionary, not a %s",
                             uni_value_type_name(uni_value_type_of(config)));
    run->config = config ? uni_value_copy(config) : uni_value_dict();
    if (!run->config)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the config");
    if (asked->attachment && !(run->attachment = uni_value_copy(asked->attachment)))
        return uni_error_set(err, UNI_ENOMEM, "no memory for the attachment");
    UNI_TRY(uni__run_check_datasets(asked->datasets, err));
    if (asked->datasets && !(run->datasets = uni_value_copy(asked->datasets)))
        return uni_error_set(err, UNI_ENOMEM, "no memory for the datasets");
    run->synchronous = asked->synchronous_checkpoints;
    UNI_TRY(uni_checkpoint_policy_check(asked->policy, err));
    if (asked->policy)
        run->policy = *asked->policy;
    if (run->policy.score_attribute) {
        run->policy.score_attribute = run->score_attribute = strdup(run->policy.score_attribute);
        if (!run->score_attribute)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a run");
    }
    if (!(asked->time_limit >= 0) || !(asked->progress_timeout >= 0))
        return uni_error_set(err, UNI_EINVAL,
                             "time_limit and progress_timeout must not be negative");
    run->time_limit = asked->time_limit;
    run->progress_timeout = asked->progress_timeout;
    run->v1 = asked->v1_checkpoints;
    run->trial = asked->trial;
    return copy_start(run, asked, err);
}

/* ---- sinks ---- */

static void release(void *argument);

typedef struct release_order {
    uni_trainer *trainer;
    int attempt;
    int64_t iteration;
} release_order;

/* Controller thread: ranks that wait in lockstep may go on. */
static void release(void *argument)
{
    release_order *order = argument;
    uni__run *run = order->trainer->run;
    for (int i = 0; run && run->attempt == order->attempt && i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        if (page && (int32_t)(atomic_load(&page->released) - (uint32_t)order->iteration) < 0) {
            atomic_store(&page->released, (uint32_t)order->iteration);
            uni__futex_wake(&page->released);
        }
    }
    free(order);
}

void uni__run_release(uni__run *run, int attempt, int64_t iteration)
{
    release_order *order = malloc(sizeof *order);
    if (!order)
        return;
    *order = (release_order){ .trainer = run->trainer, .attempt = attempt, .iteration = iteration };
    uni__group_post(run->group, release, order);
}

static void on_consumed(void *context, int attempt, int64_t iteration)
{
    uni__run_release(context, attempt, iteration);
}

static void on_sink_warning(void *context, const char *message)
{
    uni__run *run = context;
    uni_value *record = uni_value_dict();
    if (uni_dict_take(record, "message", uni_value_string(message)) == 0)
        uni__run_note(run, "warning", record, false);
    else
        uni_value_free(record);
}

static double total_iterations(const uni_value *config)
{
    static const char *const names[] = { "num_epochs", "epochs", "iterations", "steps" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        double total = uni_dict_get_float(config, names[i], 0);
        if (total > 0)
            return total;
    }
    return 0;
}

static int start_sinks(uni__run *run, const uni_run_options *asked, uni_error *err)
{
    int given = asked->num_sinks > 0 ? asked->num_sinks : 0, count = 0;
    uni_sink *all[given + 1];
    bool has_csv = asked->num_sinks < 0;
    if (asked->num_sinks != 0 && !(run->sink_names = uni_value_list()))
        return uni_error_set(err, UNI_ENOMEM, "no memory for the run");
    for (int i = 0; i < given; i++) {
        all[count++] = asked->sinks[i];
        if (uni_list_take(run->sink_names, uni_value_string(uni_sink_name(asked->sinks[i]))) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the run");
        has_csv |= strcmp(uni_sink_name(asked->sinks[i]), "csv") == 0;
    }
    if (!has_csv) {
        UNI_TRY(uni_sink_csv(&run->csv, NULL, err));
        all[count++] = run->csv;
    }
    uni_run_info info = {
        .run_dir = run->dir,
        .name = run->trainer->name,
        .run_id = run->id,
        .world_size = run->num_workers,
        .config = run->config,
        .function =
            run->function ? run->function : uni_value_as_string(uni_list_get(run->program, 0), ""),
        .total_iterations = total_iterations(run->config),
    };
    bool lockstep = run->trainer->options.lockstep;
    return uni__sink_runner_start(
        &run->sinks,
        &(uni__sink_runner_options){ .writer = run->writer,
                                     .info = &info,
                                     .sinks = all,
                                     .num_sinks = count,
                                     .lockstep = lockstep,
                                     .consumed =
                                         lockstep && !run->consumed_by_caller ? on_consumed : NULL,
                                     .warning = on_sink_warning,
                                     .context = run },
        err);
}

/* ---- life ---- */

static int hold_ports(uni__run *run, uni_error *err)
{
    if (run->trainer->hosts)
        return 0; /* each host holds those of its ranks */
    if (strcmp(run->trainer->options.backend, "tensorflow") == 0)
        return uni__ports_hold(&run->ports, run->num_workers, true, err);
    if (strcmp(run->trainer->options.backend, "torch") == 0)
        return uni__ports_hold(&run->ports, 1, false, err);
    return 0;
}

int uni__run_new(uni__run **out, uni_trainer *trainer, const uni_run_options *asked,
                 bool for_iterator, uni_error *err)
{
    int status;
    *out = NULL;
    uni__run *run = calloc(1, sizeof *run);
    if (!run)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a run");
    run->trainer = trainer;
    run->num_workers = trainer->options.num_workers;
    run->ranks = trainer->ranks;
    run->resume_fd = run->dir_fd = -1;
    run->created = uni__wall_seconds();
    run->consumed_by_caller = for_iterator;
    uni__cause_clear(&run->cause);
    uni__cause_clear(&run->previous_cause);
    pthread_mutex_init(&run->journal_lock, NULL);
    pthread_mutex_init(&run->done_lock, NULL);
    pthread_cond_init(&run->done_cond, NULL);
    uni_run_options merged = with_defaults(asked, trainer->options.run_defaults);
    asked = &merged;
    UNI_TRY_GOTO(copy_options(run, asked, err), fail);
    if (asked->resume_run)
        UNI_TRY_GOTO(uni__run_dir_reopen(run, asked->resume_run, err), fail);
    else
        UNI_TRY_GOTO(uni__run_dir_make(run, trainer->logdir, err), fail);
    UNI_TRY_GOTO(uni__persist_start(&run->persist, run, err), fail);
    UNI_TRY_GOTO(hold_ports(run, err), fail);
    UNI_TRY_GOTO(uni__run_write_description(run, "starting", err), fail);
    UNI_TRY_GOTO(start_sinks(run, asked, err), fail);
    *out = run;
    return 0;
fail:
    if (run->persist) {
        uni_value *nothing = NULL;
        uni__persist_end(run->persist, true, &nothing);
        uni_value_free(nothing);
    }
    uni_sink_free(run->csv);
    run_free(run);
    return status;
}

void uni__run_wait(uni__run *run)
{
    pthread_mutex_lock(&run->done_lock);
    while (!run->done)
        pthread_cond_wait(&run->done_cond, &run->done_lock);
    pthread_mutex_unlock(&run->done_lock);
}

static void let_pass(void *argument) {}

uni_result *uni__run_end(uni__run *run)
{
    char sentence[UNI_ERROR_MESSAGE_SIZE];
    uni_value *latest_dict = NULL;
    /* The newest checkpoint stays, kept by the policy or not: the result names it. */
    uni__persist_end(run->persist, run->error.code != 0 || !run->v1, &latest_dict);
    /* What the persist thread posted before it ended may still be in the controller's queue, and the callback that ended the run may still be on
     * its way out: both are over when this one had its turn. */
    if (run->group)
        uni__group_call(run->group, let_pass, NULL);
    uni__sink_runner_drain(run->sinks);
    if (run->error.code == 0 && run->v1 &&
        uni__sink_runner_uneven(run->sinks, sentence, sizeof sentence) > 0) {
        uni_error_set(&run->error, UNI_EMISMATCH, "%s", sentence);
        run->cause = (uni__cause){
            .kind = UNI__CAUSE_ERROR, .rank = -1, .exit_code = -1, .error_code = UNI_EMISMATCH
        };
        snprintf(run->cause.message, sizeof run->cause.message, "%s", sentence);
        uni_error err = { 0 };
        if (uni__run_write_description(run, "failed", &err) < 0)
            uni__warn("%s", err.message);
    }
    uni_result *result = uni__result_new(run);
    if (result)
        uni__result_set_latest_dict(result, latest_dict);
    else
        uni_value_free(latest_dict);
    uni__sink_runner_finish(
        run->sinks,
        &(uni_finish_info){ .code = run->error.code,
                            .message = run->error.message,
                            .attempts = run->attempt,
                            .seconds = (double)(uni__monotonic_ns() - run->begun_ns) * 1e-9,
                            .best_checkpoint = run->best_path[0] ? run->best_path : NULL,
                            .latest_checkpoint = run->latest_path[0] ? run->latest_path : NULL });
    uni_sink_free(run->csv);
    run_free(run);
    return result;
}
