/* run_command.h - the parts of `unisono run`: its options, the request, the output. For the run_*.c
 * files only. */
#ifndef UNISONO_CLI_RUN_COMMAND_H
#define UNISONO_CLI_RUN_COMMAND_H

#include <pthread.h>

#include <unisono/trainer.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/follow_logs.h"

typedef struct run_values {
    const char *storage, *color, *backend, *launcher, *name, *config, *chdir, *keep, *keep_best,
        *checkpoint_every, *resume, *from_checkpoint;
    cli_list set, env, sink;
    const char *env_file;
    const char *hosts, *interface;
    bool encrypt, no_seal;
    const char *secret_file, *transport;
    long long min_workers;
    const char *workers; /* "2:4" */
    long long num_workers, servers, evaluators, max_failures;
    double cpus, memory, address_space, time_limit, progress_timeout, grace, log_cap;
    bool requeue, use_gpu, quiet, verbose, dry_run, json, no_retry_errors, as_ray, sync_checkpoints;
} run_values;

/* The request that results from the command line, a config file and a run to resume. Owns what it
 * points to. */
typedef struct run_request {
    uni_trainer_options trainer;
    uni_run_options run;
    uni_checkpoint_policy policy;
    uni_value *config;
    uni_run *resumed; /* the run to resume, or NULL */
    const char **program; /* NULL-terminated; strings belong to argv or `resumed` */
    const char *sink; /* sinks of the resumed run, separated by commas; NULL: as given */
    uni__text remembered_sinks;
    char *from_dir, *score, *own_dir;
    bool done; /* --requeue: the job's run has succeeded before */
} run_request;

int cli_run_request(run_request *out, const cli_parsed *parsed, uni_error *err) UNI_MUST_USE;
void cli_run_request_free(run_request *request);
/* "lr=0.1", "model.layers=[1,2]", "name=x": sets a value in the dictionary; dots address nested
 * ones. */
int cli_config_set(uni_value *config, const char *word, uni_error *err) UNI_MUST_USE;

/* --as-ray: replaces this process by the script's interpreter; returns only on failure. */
int cli_run_as_ray(const cli_parsed *parsed, const cli_option *options,
                   uni_error *err) UNI_MUST_USE;

/* The sinks that --sink can name; run_output.c makes them. */
#define CLI_SINKS "csv|json|print|tensorboard|mlflow"

/* Sinks and the workers' output. */
#define CLI_MAX_SINKS 8
typedef struct run_output {
    cli_context *context;
    const run_values *values;
    uni_sink *sinks[CLI_MAX_SINKS];
    int num_sinks, num_display; /* the first ones are for the terminal */
    bool no_sinks, has_csv; /* --sink none, --sink csv */
    bool bar; /* the terminal shows a bar: the sink thread prints the workers' lines above it */
    cli_log_follower *follower; /* created when the run's directory is known */
    uni_error problem; /* of the follower; reported at the end */
    pthread_mutex_t lock; /* guards said: the library warns from any thread */
    uni__text said, above; /* warnings to print above the bar; what is above it now (sink thread) */
} run_output;

int cli_run_output_open(run_output *out, cli_context *context, const run_values *values,
                        const run_request *request, uni_error *err) UNI_MUST_USE;
/* Prints the rest of the workers' output, then frees everything. */
void cli_run_output_close(run_output *out);
/* Prints the final block: how the run ended, where the files are, what to do next. */
void cli_run_conclude(const cli_context *context, const run_values *values, const char *run_dir,
                      const uni_error *err);
/* --dry-run. Returns the exit code. */
int cli_run_show_plan(cli_context *context, const run_values *values, const run_request *request,
                      uni_value *plan);

#endif
