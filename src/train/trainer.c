/*
 * trainer.c - the public trainer: start, run, fit, shutdown. User's thread; the work happens on the
 * controller thread (control.c).
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/shared.h"
#include "base/file.h"
#include "base/log.h"
#include "group/agent.h"
#include "train/hosts_internal.h"
#include "train/main_internal.h"
#include "train/trainer_internal.h"
#include "train/variables.h"
#include "base/options.h"

/* A program with a trainer of its own that `unisono run -n N` has started N times would train N
 * times, each time with all its workers, and write the same files. A program that has opened its
 * session is a worker and knows what it does. */
static int refuse_copies(const uni_trainer_options *options, uni_error *err)
{
    const char *session = getenv(UNI__SESSION_VARIABLE), *size = getenv("UNISONO_WORLD_SIZE");
    int copies = size ? atoi(size) : 1;
    if (!session || strncmp(session, "1:p:", 4) != 0 || copies < 2)
        return 0;
    const char *name = options && options->main && options->main->argc > 0 ? options->main->argv[0]
                                                                           : "the program";
    return uni_error_set(err, UNI_ESTATE,
                         "this program starts its own workers, and `unisono run` has started %d "
                         "copies of it: each would train by itself and write the same files. Start "
                         "%.200s once, without `unisono run` (or with `unisono run -n 1`)",
                         copies, name);
}

int uni_trainer_new(uni_trainer **out, const uni_trainer_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_trainer_options, options, log_cap, err);
    UNI_TRY(refuse_copies(options, err));
    uni_trainer *trainer = calloc(1, sizeof *trainer);
    if (!trainer)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a trainer");
    pthread_mutex_init(&trainer->lock, NULL);
    trainer->template_fd = -1;
    trainer->run_dirs = uni_value_list();
    int status = uni__trainer_copy_options(trainer, options, err);
    if (status == 0 &&
        !(trainer->ranks = calloc((size_t)trainer->options.num_workers, sizeof *trainer->ranks)))
        status = uni_error_set(err, UNI_ENOMEM, "no memory for %d workers",
                               trainer->options.num_workers);
    if (status < 0) {
        uni_trainer_free(trainer);
        return status;
    }
    *out = trainer;
    return 0;
}

void uni_trainer_free(uni_trainer *trainer)
{
    if (!trainer)
        return;
    uni_trainer_shutdown(trainer);
    for (int i = 0; trainer->ranks && i < trainer->options.num_workers; i++)
        uni__rank_forget(&trainer->ranks[i], 0);
    free(trainer->ranks);
    if (trainer->template_fd >= 0)
        close(trainer->template_fd);
    uni_value_free(trainer->run_dirs);
    uni__hosts_free(trainer);
    uni__trainer_drop_options(trainer);
    pthread_mutex_destroy(&trainer->lock);
    free(trainer);
}

typedef struct start_call {
    uni_trainer *trainer;
    int status;
    uni_error err;
} start_call;

static void start_workers(void *argument)
{
    start_call *call = argument;
    call->status = uni__attempt_spawn_idle(call->trainer, &call->err);
}

static void start_signals(void *argument)
{
    start_call *call = argument;
    call->status = uni__group_handle_signals(call->trainer->group, true, &call->err);
}

static int ensure_group(uni_trainer *trainer, uni_error *err)
{
    if (trainer->group)
        return 0;
    if (!trainer->hosts && !trainer->warned_crowded &&
        trainer->options.num_workers > trainer->host.cpus) {
        trainer->warned_crowded = true;
        uni__warn("%d workers share %g CPUs: they take turns", trainer->options.num_workers,
                  trainer->host.cpus);
    }
    UNI_TRY(uni__group_new(&trainer->group, trainer->options.num_workers, trainer->template_fd,
                           &uni__trainer_events, trainer, err));
    for (int i = 0; i < trainer->options.num_workers; i++)
        trainer->ranks[i].worker = uni__group_worker(trainer->group, i);
    if (!trainer->options.handle_signals)
        return 0;
    start_call call = { .trainer = trainer };
    uni__group_call(trainer->group, start_signals, &call);
    if (call.status < 0 && err)
        *err = call.err;
    return call.status;
}

int uni_trainer_start(uni_trainer *trainer, uni_error *err)
{
    if (trainer->started)
        return uni_error_set(err, UNI_ESTATE, "this trainer is started already");
    UNI_TRY(ensure_group(trainer, err));
    if (trainer->worker_argv && !trainer->options.fresh_workers) {
        start_call call = { .trainer = trainer };
        uni__group_call(trainer->group, start_workers, &call);
        if (call.status < 0) {
            if (err)
                *err = call.err;
            uni_trainer_shutdown(trainer);
            return call.status;
        }
    }
    trainer->started = true;
    return 0;
}

void uni_trainer_shutdown(uni_trainer *trainer)
{
    trainer->started = false;
    if (!trainer->group)
        return; /* never started, or fresh_workers between runs */
    uni__group_dismiss(trainer->group, trainer->options.grace_seconds);
    uni__group_retire(trainer->group);
    uni__group_free(trainer->group);
    trainer->group = NULL;
    for (int i = 0; i < trainer->options.num_workers; i++) {
        trainer->ranks[i].worker = NULL;
        uni__rank_forget(&trainer->ranks[i], 0);
    }
    char *logs = uni__path_join(trainer->logdir, ".start", NULL);
    if (logs && uni__remove_tree(logs, NULL) < 0)
        uni__warn("%s could not be removed", logs);
    free(logs);
}

int uni__trainer_begin(uni_trainer *trainer, const uni_run_options *asked, bool for_iterator,
                       uni__run **out, uni_error *err)
{
    *out = NULL;
    if (trainer->current)
        return uni_error_set(
            err, UNI_ESTATE,
            "this trainer is busy with a run; wait for its end or free its iterator");
    uni__run *run = NULL;
    UNI_TRY(uni__run_new(&run, trainer, asked, for_iterator, err));
    if (uni_list_take(trainer->run_dirs, uni_value_string(run->places.dir)) == 0)
        atomic_store(
            &trainer->latest_run_dir,
            uni_value_as_string(
                uni_list_get(trainer->run_dirs, uni_list_size(trainer->run_dirs) - 1), NULL));
    /* Workers that wait for functions are of no use to a program of its own. */
    if (run->request.program && trainer->group && trainer->worker_argv)
        uni_trainer_shutdown(trainer);
    int status = ensure_group(trainer, err);
    if (status < 0) {
        uni_error_set(&run->outcome.error, status, "%s",
                      err ? err->message : "the workers could not be started");
        run->outcome.cause.kind = UNI__CAUSE_LAUNCH;
        run->state = UNI__RUN_DONE;
        if (uni__run_write_description(run, "failed", NULL) < 0)
            uni__warn("the description of %s could not be written", run->places.id);
        uni_result_free(uni__run_end(run));
        return status;
    }
    run->group = trainer->group;
    pthread_mutex_lock(&trainer->lock);
    trainer->current = run;
    pthread_mutex_unlock(&trainer->lock);
    *out = run;
    return 0;
}

void uni__trainer_ended(uni_trainer *trainer)
{
    pthread_mutex_lock(&trainer->lock);
    trainer->current = NULL;
    pthread_mutex_unlock(&trainer->lock);
    if (trainer->options.fresh_workers) { /* these have done their run */
        bool started = trainer->started;
        uni_trainer_shutdown(trainer);
        trainer->started = started;
    }
}

static int run_once(uni_trainer *trainer, const uni_run_options *asked, uni_result **out,
                    uni_error *err)
{
    uni__run *run = NULL;
    UNI_TRY(uni__trainer_begin(trainer, asked, false, &run, err));
    uni__group_post(trainer->group, uni__run_begin, run);
    uni__outcome_wait(&run->outcome);
    uni_result *result = uni__run_end(run);
    uni__trainer_ended(trainer);
    if (!result)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the result");
    int code = uni_result_info_of(result)->error->code;
    if (code < 0 && err)
        *err = *uni_result_info_of(result)->error;
    if (out)
        *out = result;
    else
        uni_result_free(result);
    return code;
}

int uni_trainer_run(uni_result **out, uni_trainer *trainer, const uni_run_options *run,
                    uni_error *err)
{
    UNI__OPTIONS(uni_run_options, run, v1_checkpoints, err);
    if (out)
        *out = NULL;
    if (!trainer->started)
        return uni_error_set(err, UNI_ESTATE,
                             "this trainer is not active: call start before run (or use fit)");
    return run_once(trainer, run, out, err);
}

int uni_trainer_fit(uni_result **out, uni_trainer *trainer, const uni_run_options *run,
                    uni_error *err)
{
    UNI__OPTIONS(uni_run_options, run, v1_checkpoints, err);
    bool was_started = trainer->started;
    if (out)
        *out = NULL;
    int status = run_once(trainer, run, out, err);
    if (!was_started)
        uni_trainer_shutdown(trainer);
    return status;
}

void uni_trainer_stop(uni_trainer *trainer, bool now)
{
    pthread_mutex_lock(&trainer->lock);
    if (trainer->current)
        uni__group_post(trainer->group, now ? uni__run_stop_now_posted : uni__run_stop_posted,
                        trainer);
    pthread_mutex_unlock(&trainer->lock);
}

typedef struct scale_order {
    uni_trainer *trainer;
    int workers;
} scale_order;

static void scale(void *argument)
{
    scale_order *order = argument;
    if (order->trainer->run)
        uni__resize_to(order->trainer->run, order->workers);
    free(order);
}

int uni_trainer_scale(uni_trainer *trainer, int workers, uni_error *err)
{
    if (trainer->min_workers == 0)
        return uni_error_set(err, UNI_ESTATE,
                             "this trainer always has %d workers: give it min_workers and "
                             "max_workers",
                             trainer->options.num_workers);
    if (workers < trainer->min_workers || workers > trainer->options.num_workers)
        return uni_error_set(err, UNI_EINVAL, "this trainer has %d to %d workers, not %d",
                             trainer->min_workers, trainer->options.num_workers, workers);
    scale_order *order = malloc(sizeof *order);
    if (!order)
        return uni_error_set(err, UNI_ENOMEM, "no memory to change the number of workers");
    *order = (scale_order){ trainer, workers };
    pthread_mutex_lock(&trainer->lock);
    bool runs = trainer->current != NULL;
    if (runs)
        uni__group_post(trainer->group, scale, order);
    pthread_mutex_unlock(&trainer->lock);
    if (runs)
        return 0;
    free(order);
    return uni_error_set(err, UNI_ESTATE, "this trainer has no run whose workers could change");
}

const char *uni__trainer_logdir(const uni_trainer *trainer)
{
    return trainer->logdir;
}

const char *uni_trainer_latest_run_dir(const uni_trainer *trainer)
{
    return atomic_load(&((uni_trainer *)trainer)->latest_run_dir);
}

bool uni__trainer_is_started(const uni_trainer *trainer)
{
    return trainer->started;
}

/* ---- what a run would do ---- */

static uni_value *plan_of_rank(const uni__world *world, int rank)
{
    const uni_trainer *trainer = world->trainer;
    uni_value *list = uni__world_environment(world, rank), *mine = uni_value_dict(),
              *out = uni_value_dict();
    extern char **environ;
    int status = 0;
    /* Only what we add to the caller's own environment. */
    for (size_t i = 0; i < uni_list_size(list); i++) {
        const char *pair = uni_value_as_string(uni_list_get(list, i), "");
        bool inherited = false;
        for (char **at = environ; *at && !inherited; at++)
            inherited = strcmp(*at, pair) == 0;
        char *name = inherited ? NULL : strndup(pair, strcspn(pair, "="));
        if (name)
            status |= uni_dict_take(
                mine, name,
                uni_value_string(uni__variable_is_secret(name)
                                     ? "***"
                                     : pair + strlen(name) + (pair[strlen(name)] == '=')));
        free(name);
    }
    uni_value_free(list);
    int node = 0, local_rank = rank;
    const char *host = trainer->host.hostname;
    (void)uni__hosts_planned(trainer, rank, &node, &local_rank, &host);
    status |= uni_dict_take(out, "rank", uni_value_int(rank));
    status |= uni_dict_take(out, "local_rank", uni_value_int(local_rank));
    status |= uni_dict_take(out, "node_rank", uni_value_int(node));
    status |= uni_dict_take(out, "host", uni_value_string(host));
    status |= uni_dict_take(out, "environment", mine);
    if (status == 0)
        return out;
    uni_value_free(out);
    return NULL;
}

int uni_trainer_plan(uni_value **out, uni_trainer *trainer, const uni_run_options *asked,
                     uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_run_options, asked, v1_checkpoints, err);
    uni__ports ports = { 0 };
    uni__world world = {
        .trainer = trainer, .size = trainer->options.num_workers, .attempt = 1, .ports = &ports
    };
    const char *backend = trainer->options.backend;
    char *exe = NULL;
    int status = 0;
    if (asked->program && asked->program[0])
        UNI_TRY(uni__find_program(asked->program[0], &exe, err));
    if (strcmp(backend, "tensorflow") == 0 || strcmp(backend, "torch") == 0)
        UNI_TRY_GOTO(uni__ports_plan(&ports, strcmp(backend, "torch") == 0 ? 1 : world.size, err),
                     done);
    uni_value *plan = uni_value_dict(), *workers = uni_value_list(), *warnings = uni_value_list();
    int failed = 0;
    for (int i = 0; i < world.size; i++)
        failed |= uni_list_take(workers, plan_of_rank(&world, i));
    if (trainer->hosts) {
        uni_value *command = NULL;
        status = uni__hosts_plan_command(trainer, &command, err);
        if (status < 0) {
            uni_value_free(plan);
            uni_value_free(workers);
            uni_value_free(warnings);
            goto done;
        }
        failed |= uni_dict_take(plan, "launcher_command", command);
    } else if (trainer->options.num_workers > trainer->host.cpus)
        failed |=
            uni_list_take(warnings, uni_value_string("more workers than CPUs: they take turns"));
    failed |= uni_dict_take(plan, "workers", workers);
    failed |= uni_dict_take(plan, "warnings", warnings);
    failed |= uni_dict_take(plan, "logdir", uni_value_string(trainer->logdir));
    failed |= uni_dict_take(plan, "cpus_per_worker", uni_value_float(trainer->cpus_each));
    failed |= uni_dict_take(plan, "backend", uni_value_string(backend));
    failed |= uni_dict_take(plan, "launcher", uni_value_string(trainer->options.launcher));
    failed |= uni_dict_take(plan, "host", uni_value_string(trainer->host.hostname));
    if (exe)
        failed |= uni_dict_take(plan, "program", uni_value_string(exe));
    if (failed) {
        uni_value_free(plan);
        status = uni_error_set(err, UNI_ENOMEM, "no memory for the plan");
    } else {
        *out = plan;
    }
done:
    uni__ports_release(&ports);
    free(exe);
    return status;
}
