/*
 * run_setup.c - making a run and taking it apart again, on the user's thread.
 *
 * Order of making: options, directory, journal and results, checkpoints, ports, sinks. Taking apart
 * is the reverse: first the sinks get everything, then the files are closed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "track/shared.h"
#include "checkpoint/shared.h"
#include "base/clock.h"
#include "base/log.h"
#include "train/trainer_internal.h"

static void run_free(uni__run *run)
{
    uni__results_writer_close(run->writer);
    uni__ports_release(&run->ports);
    uni_value_free(run->sink_names);
    if (!uni__outcome_is_over(&run->outcome)) /* it never began */
        uni__places_release_reserve(&run->places);
    uni__cause_clear(&run->budget.before);
    uni__start_clear(&run->attempt.start);
    uni__request_clear(&run->request);
    uni__outcome_clear(&run->outcome);
    uni__places_clear(&run->places);
    free(run);
}

/* ---- sinks ---- */

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
    for (int i = 0; run && run->attempt.number == order->attempt && i < run->num_workers; i++) {
        uni__page *page = uni__group_page(run->group, i);
        if (page && (int32_t)(atomic_load(&page->released) - (uint32_t)order->iteration) < 0)
            uni__page_release(page, order->iteration);
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
    uni__run_note(context, "warning", UNI__DICT({ "message", uni_value_string(message) }), false);
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
    bool has_csv = asked->num_sinks < 0 || asked->no_csv;
    if (asked->num_sinks != 0 && !(run->sink_names = uni_value_list()))
        return uni_error_set(err, UNI_ENOMEM, "no memory for the run");
    for (int i = 0; i < given; i++) {
        all[count++] = asked->sinks[i];
        if (uni_list_take(run->sink_names, uni_value_string(uni__sink_name(asked->sinks[i]))) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the run");
        has_csv |= strcmp(uni__sink_name(asked->sinks[i]), "csv") == 0;
    }
    if (!has_csv) {
        UNI_TRY(uni_sink_csv(&run->csv, NULL, err));
        all[count++] = run->csv;
    }
    uni_start_info info = {
        .run_dir = run->places.dir,
        .name = run->trainer->name,
        .run_id = run->places.id,
        .world_size = run->num_workers,
        .config = run->request.config,
        .function = run->request.function
                        ? run->request.function
                        : uni_value_as_string(uni_list_get(run->request.program, 0), ""),
        .total_iterations = total_iterations(run->request.config),
        .resizes = uni__run_is_resizable(run),
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
    run->target = trainer->first_workers;
    run->ranks = trainer->ranks;
    run->attempt.start.fd = -1;
    uni__places_init(&run->places);
    uni__outcome_init(&run->outcome);
    run->created = uni__wall_seconds();
    run->consumed_by_caller = for_iterator;
    uni__cause_clear(&run->budget.before);
    static const uni_run_options none = { 0 };
    asked = asked ? asked : &none;
    UNI_TRY_GOTO(uni__request_read(&run->request, asked, trainer->worker_argv != NULL,
                                   trainer->functions, err),
                 fail);
    run->budget.programs = run->request.program != NULL;
    uni__start_set(&run->attempt.start, "", run->request.from_fd, run->request.from_state);
    run->request.from_fd = -1;
    run->request.from_state = NULL;
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

static void let_pass(void *argument) {}

uni_result *uni__run_end(uni__run *run)
{
    char sentence[UNI_ERROR_MESSAGE_SIZE];
    uni_value *latest_dict = NULL;
    /* The newest checkpoint stays, kept by the policy or not: the result names it. */
    uni__persist_end(run->persist, run->outcome.error.code != 0 || !run->request.v1, &latest_dict);
    /* What the persist thread posted before it ended may still be in the controller's queue, and
     * the callback that ended the run may still be on its way out: both are over when this one had
     * its turn. */
    if (run->group)
        uni__group_call(run->group, let_pass, NULL);
    uni__sink_runner_drain(run->sinks);
    if (run->outcome.error.code == 0 && run->request.v1 &&
        uni__sink_runner_uneven(run->sinks, sentence, sizeof sentence) > 0) {
        uni_error_set(&run->outcome.error, UNI_EMISMATCH, "%s", sentence);
        run->outcome.cause = (uni__cause){
            .kind = UNI__CAUSE_ERROR, .rank = -1, .exit_code = -1, .error_code = UNI_EMISMATCH
        };
        snprintf(run->outcome.cause.message, sizeof run->outcome.cause.message, "%s", sentence);
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
        &(uni_finish_info){
            .code = run->outcome.error.code,
            .message = run->outcome.error.message,
            .attempts = run->attempt.number,
            .seconds = (double)(uni__monotonic_ns() - run->begun_ns) * 1e-9,
            .best_checkpoint = run->outcome.best_path[0] ? run->outcome.best_path : NULL,
            .latest_checkpoint = run->outcome.latest_path[0] ? run->outcome.latest_path : NULL });
    uni_sink_free(run->csv);
    run_free(run);
    return result;
}
