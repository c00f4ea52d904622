/*
 * run_command.c - `unisono run`: starts the workers of a program and supervises them.
 *
 * The trainer does the work: its controller has its own thread, the sinks another. This process
 * waits in uni_trainer_fit, and a third thread prints what the workers write. The trainer handles
 * SIGINT and SIGTERM.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <unisono/log.h>

#include "cli/requeue.h"
#include "cli/run_command.h"
#include "cli/stand_in.h"
#include "train/hosts_join.h"

#define AT(field) offsetof(run_values, field)

static const cli_option run_options[] = {
    { "Workers", "num-workers", 'n', CLI_INT, AT(num_workers), "N", "1", "UNISONO_NUM_WORKERS",
      NULL, "number of workers; each gets its rank in UNISONO_RANK and RANK" },
    { NULL, "workers", 0, CLI_STRING, AT(workers), "MIN:MAX", NULL, NULL, NULL,
      "a number of workers that may change while the engine's fit goes on: it begins with MAX (or "
      "with -n), continues with fewer when workers are lost, down to MIN, and `unisono scale` "
      "changes it" },
    { NULL, "servers", 0, CLI_INT, AT(servers), "N", "0", NULL, NULL,
      "parameter servers in addition to the workers, plus a chief that coordinates them; roles are "
      "in UNISONO_ROLE and TF_CONFIG; a worker or server that dies is restarted alone" },
    { NULL, "evaluators", 0, CLI_INT, AT(evaluators), "N", "0", NULL, NULL,
      "0 or 1 evaluator process (for TF_CONFIG)" },
    { NULL, "backend", 'b', CLI_CHOICE, AT(backend), "NAME", "none", NULL,
      "none|native|tensorflow|torch|horovod",
      "which framework's environment to set in the workers: TF_CONFIG for tensorflow, MASTER_ADDR "
      "and MASTER_PORT for torch, HOROVOD_* for horovod" },
    { NULL, "cpus", 0, CLI_NUMBER, AT(cpus), "N", NULL, NULL, NULL,
      "CPUs per worker, for OMP_NUM_THREADS (default: an equal share)" },
    { NULL, "memory", 0, CLI_SIZE, AT(memory), "SIZE", NULL, NULL, NULL,
      "reserve this much for each worker, for example 2G: refused when the host has less; no limit "
      "is set" },
    { NULL, "address-space", 0, CLI_SIZE, AT(address_space), "SIZE", NULL, NULL, NULL,
      "hard limit on each worker's address space (RLIMIT_AS); frameworks map several GB" },
    { NULL, "use-gpu", 0, CLI_FLAG, AT(use_gpu), NULL, NULL, NULL, NULL,
      "one GPU per worker, through CUDA_VISIBLE_DEVICES" },
    { NULL, "env", 'e', CLI_LIST, AT(env), "NAME[=VALUE]", NULL, NULL, NULL,
      "add a variable to the workers' environment; without =VALUE the value comes from this "
      "command's environment and does not appear in `ps`" },
    { NULL, "env-file", 0, CLI_STRING, AT(env_file), "FILE", NULL, NULL, "<file>",
      "read variables from a file with lines NAME=VALUE or NAME and # comments; refused if other "
      "users can read the file. Only the names are recorded" },
    { NULL, "chdir", 0, CLI_STRING, AT(chdir), "DIR", NULL, NULL, "<dir>",
      "working directory of the workers" },
    { NULL, "launcher", 0, CLI_STRING, AT(launcher), "NAME", "local", "UNISONO_LAUNCHER", NULL,
      "how to start workers: local, ssh (the default with --hosts), mpi (mpirun on --hosts) or "
      "slurm "
      "(srun in this allocation); inside an existing mpirun or srun its processes are used" },
    { NULL, "hosts", 0, CLI_STRING, AT(hosts), "LIST", NULL, NULL, NULL,
      "ssh, mpi: hosts and their number of slots, as a:2,b:2; slots beyond the number of workers "
      "are "
      "spare" },
    { NULL, "interface", 0, CLI_STRING, AT(interface), "NAME", NULL, NULL, NULL,
      "where other hosts reach this machine: an interface, an address, or a subnet such as "
      "10.1.0.0/16 (default: probed)" },
    { NULL, "transport", 0, CLI_STRING, AT(transport), "NAME", NULL, NULL, NULL,
      "what carries the engine's collectives between hosts: ucx or mpi (default: "
      "$UNISONO_TRANSPORT, "
      "otherwise ucx if every host has its plug-in)" },
    { NULL, "encrypt", 0, CLI_FLAG, AT(encrypt), NULL, NULL, NULL, NULL,
      "encrypt all traffic between hosts, including gradients; refuse backends whose own "
      "connections cannot be encrypted" },
    { NULL, "no-seal", 0, CLI_FLAG, AT(no_seal), NULL, NULL, NULL, NULL,
      "do not encrypt messages between this machine and the hosts; they are still authenticated" },
    { NULL, "secret-file", 0, CLI_STRING, AT(secret_file), "FILE", NULL, NULL, "<file>",
      "file of at least 32 random bytes, mode 0600, at the same path on every host; only hosts "
      "that have it can join (default: $UNISONO_SECRET_FILE)" },
    { NULL, "min-workers", 0, CLI_INT, AT(min_workers), "N", "0", NULL, NULL,
      "when a host is lost, or without hosts a worker, continue with fewer workers, but not fewer "
      "than this (default: as many as requested)" },

    { NULL, "as-ray", 0, CLI_FLAG, AT(as_ray), NULL, NULL, NULL, NULL,
      "run a Ray script, which creates its own workers: $UNISONO_PYTHON (default python3) runs it "
      "once, with `import ray` meaning unisono in it and in its workers" },

    { "The run", "name", 0, CLI_STRING, AT(name), "NAME", NULL, NULL, NULL,
      "experiment name; reusing a name creates its next run number (default: train_ and the "
      "date)" },
    CLI_STORAGE_OPTION(run_values),
    { NULL, "config", 0, CLI_STRING, AT(config), "FILE", NULL, NULL, "<file>",
      "JSON file with the workers' config, a dictionary" },
    { NULL, "set", 's', CLI_LIST, AT(set), "KEY=VALUE", NULL, NULL, NULL,
      "set one key of the config; dots reach into dictionaries (model.lr=0.1); the value is JSON, "
      "otherwise text" },
    { NULL, "sink", 0, CLI_LIST, AT(sink), "LIST", "csv", NULL, CLI_SINKS,
      "where reports go in addition to results.jsonl: one or more of " CLI_SINKS
      ", separated by commas, or none" },

    { "Failures", "max-failures", 'f', CLI_INT, AT(max_failures), "N", "3", NULL, NULL,
      "restart the group from the last complete checkpoint up to N times; 0: never, -1: without "
      "limit" },
    { NULL, "no-retry-errors", 0, CLI_FLAG, AT(no_retry_errors), NULL, NULL, NULL, NULL,
      "end the run when a worker exits with an error (a code from 1 to 128); restart only after "
      "signals, lost hosts and ranks that do not answer" },
    { NULL, "time-limit", 't', CLI_DURATION, AT(time_limit), "TIME", NULL, NULL, NULL,
      "stop all ranks together after this time: 90s, 5m, 2h ..." },
    { NULL, "progress-timeout", 0, CLI_DURATION, AT(progress_timeout), "TIME", NULL, NULL, NULL,
      "treat the run as stuck if no rank reports for this long" },
    { NULL, "grace", 0, CLI_DURATION, AT(grace), "TIME", "10s", NULL, NULL,
      "time to save a last checkpoint after a stop request; 0: kill at once" },

    { NULL, "requeue", 0, CLI_FLAG, AT(requeue), NULL, NULL, NULL, NULL,
      "in a Slurm job: after a stop request (Slurm's signal before the time limit, a preemption) "
      "put "
      "the job back in the queue; a job that comes back resumes its own run" },

    { "Checkpoints", "keep", 'k', CLI_STRING, AT(keep), "N", "all", NULL, NULL,
      "how many checkpoints to keep: a number, all, or none" },
    { NULL, "keep-best", 0, CLI_STRING, AT(keep_best), "METRIC:ORDER", NULL, NULL, NULL,
      "keep the best checkpoints by a metric, for example loss:min or accuracy:max (default: the "
      "newest)" },
    { NULL, "checkpoint-every", 0, CLI_STRING, AT(checkpoint_every), "TIME", NULL, NULL, NULL,
      "also take checkpoints inside epochs of the engine's fit, to resume from: 5m, 90s, or "
      "500steps" },
    { NULL, "sync-checkpoints", 0, CLI_FLAG, AT(sync_checkpoints), NULL, NULL, NULL, NULL,
      "report() returns when its checkpoint is complete on disk, not when it has been handed over; "
      "all ranks must report equally often" },
    { NULL, "resume", 0, CLI_OPTIONAL, AT(resume), "RUN", NULL, NULL, "<run>",
      "resume this run (default: the newest resumable one) from its last complete checkpoint, with "
      "its program, workers, launcher, hosts, backend, config, resources, sinks, time limit, "
      "failure budget and checkpoint policy unless given here. Values of --env are not recorded, "
      "because they may be secrets: give them again" },
    { NULL, "from-checkpoint", 0, CLI_STRING, AT(from_checkpoint), "DIR", NULL, NULL, "<dir>",
      "start a new run from this checkpoint, or from the last checkpoint of this run" },

    { "Output", "quiet", 'q', CLI_FLAG, AT(quiet), NULL, NULL, NULL, NULL,
      "print only how the run ended, and only if it failed; logs are still written" },
    { NULL, "verbose", 'v', CLI_FLAG, AT(verbose), NULL, NULL, NULL, NULL,
      "print what unisono itself is doing" },
    { NULL, "log-cap", 0, CLI_SIZE, AT(log_cap), "SIZE", "64M", NULL, NULL,
      "maximum size of a rank's log file; older lines move to rank_N.log.1" },
    { NULL, "dry-run", 0, CLI_FLAG, AT(dry_run), NULL, NULL, NULL, NULL,
      "print what would be started, with each rank's environment, and start nothing" },
    { NULL, "json", 0, CLI_FLAG, AT(json), NULL, NULL, NULL, NULL,
      "with --dry-run: print the plan as JSON; otherwise print run.json at the end, with the "
      "workers' output only in the logs" },
    CLI_COLOR_OPTION(run_values),
    CLI_END_OPTION,
};

/* An error before the run directory existed. */
static int not_started(const cli_context *context, const uni_error *err)
{
    int code = cli_fail(context, "run", err);
    return code == UNI_EXIT_USAGE || code == UNI_EXIT_DISK_FULL ? code : UNI_EXIT_NOT_STARTED;
}

static int dry_run(cli_context *context, const run_values *values, uni_trainer *trainer,
                   const run_request *request)
{
    uni_value *plan = NULL;
    uni_error err = { 0 };
    if (uni_trainer_plan(&plan, trainer, &request->run, &err) < 0)
        return not_started(context, &err);
    return cli_run_show_plan(context, values, request, plan);
}

static int print_result(cli_context *context, const char *run_dir)
{
    uni_run *run = NULL;
    uni_error err = { 0 };
    if (uni_run_open(&run, run_dir, NULL, &err) < 0)
        return cli_fail(context, "run", &err);
    int code = cli_print_json(context, uni_value_copy(uni_run_info_of(run)->description));
    uni_run_close(run);
    return code;
}

static int real_run(cli_context *context, const run_values *values, uni_trainer *trainer,
                    run_request *request)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    run_output output = { 0 };
    if (cli_run_output_open(&output, context, values, request, &err) < 0) {
        cli_run_output_close(&output);
        return not_started(context, &err);
    }
    request->run.sinks = output.sinks;
    request->run.num_sinks = output.num_sinks ? output.num_sinks : UNI_SINKS_NONE;
    request->run.no_csv = !output.has_csv;
    int status = uni_trainer_fit(&result, trainer, &request->run, &err);
    request->run.sinks = NULL; /* they end here */
    request->run.num_sinks = 0;
    cli_run_output_close(&output);
    int code = UNI_EXIT_OK;
    if (!result) {
        code = status < 0 ? not_started(context, &err) : UNI_EXIT_INTERNAL;
    } else {
        code = uni_result_info_of(result)->exit_code;
        if (status < 0 && code == UNI_EXIT_OK)
            code = UNI_EXIT_INTERNAL;
        cli_run_conclude(context, values, uni_result_info_of(result)->run_dir,
                         status < 0 ? &err : NULL);
        if (values->json && print_result(context, uni_result_info_of(result)->run_dir) &&
            code == UNI_EXIT_OK)
            code = UNI_EXIT_INTERNAL;
    }
    if (values->requeue && code == UNI_EXIT_PREEMPTED)
        cli_requeue(context);
    uni_result_free(result);
    return code;
}

static void on_hangup(int number)
{
    (void)number;
    kill(getpid(), SIGTERM);
}

static void on_broken_pipe(int number)
{
    (void)number;
}

/* A closed terminal stops the run like SIGTERM (unless nohup ignores it). A reader that goes away
 * (| head) does not: logs and reports are files. Uses handlers, not SIG_IGN, because workers would
 * inherit that. */
static void set_signals(void)
{
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
        sigaction(SIGHUP, &(struct sigaction){ .sa_handler = on_hangup, .sa_flags = SA_RESTART },
                  NULL);
    sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = on_broken_pipe, .sa_flags = SA_RESTART },
              NULL);
}

static int call_run(cli_context *context, const cli_parsed *parsed)
{
    const run_values *values = parsed->values;
    uni_error err = { 0 };
    if (values->as_ray) {
        int status = cli_run_as_ray(parsed, run_options, &err); /* returns only on failure */
        return status < 0 ? not_started(context, &err) : UNI_EXIT_INTERNAL;
    }
    run_request request;
    uni_trainer *trainer = NULL;
    int code = UNI_EXIT_OK;
    if (values->verbose)
        uni_log_level_set(UNI_LOG_DEBUG);
    bool foreign = !values->dry_run &&
                   (!cli_given(parsed, "launcher") || strcmp(values->launcher, "local") != 0);
    /* `mpirun unisono run`: rank 0 is the controller, the others lend it their slots. */
    if (foreign && uni__hosts_foreign_rank() > 0)
        return uni__hosts_join_foreign(values->storage, &err) < 0 ? not_started(context, &err)
                                                                  : UNI_EXIT_INTERNAL;
    if (foreign && uni__hosts_in_mpirun() && cli_stand_in(&err) < 0)
        return not_started(context, &err);
    if (cli_run_request(&request, parsed, &err) < 0)
        code = not_started(context, &err);
    else if (request.done)
        fprintf(context->err.out, "the run of this job has succeeded: nothing to do\n");
    else if (uni_trainer_new(&trainer, &request.trainer, &err) < 0)
        code = not_started(context, &err);
    else if (values->dry_run)
        code = dry_run(context, values, trainer, &request);
    else {
        set_signals();
        code = real_run(context, values, trainer, &request);
    }
    uni_trainer_free(trainer);
    cli_run_request_free(&request);
    return code;
}

static const cli_example run_examples[] = {
    { "unisono run -n 4 -- python3 train.py --lr 0.1", "four workers of any program" },
    { "unisono run -n 2 -b torch --name digits --keep 3 -- python3 train.py",
      "PyTorch's environment, a name, the newest three checkpoints" },
    { "unisono run -n 4 --set lr=0.01 --set model.width=64 --time-limit 2h -- ./train",
      "a config and a time limit" },
    { "unisono run --resume digits", "continue a run that was stopped, killed or interrupted" },
    { "unisono run --as-ray train.py --num-workers 2", "an unmodified Ray script" },
    { "unisono run -n 8 --dry-run -- ./train", "what would be started" },
    { NULL, NULL },
};

const cli_command cli_run_command = {
    .name = "run",
    .arguments = "-- PROGRAM [ARG...]",
    .summary = "start N workers of a program and supervise them",
    .description =
        "Starts N copies of a program, in any language, and creates a run directory for their "
        "logs, reports and checkpoints. When a worker dies, the group restarts from the last "
        "complete checkpoint, up to --max-failures times, and the first cause is named in plain "
        "words. Ctrl-C asks all ranks to stop together; a second Ctrl-C kills them. No process is "
        "left behind.\n\nA program that links libunisono (or imports the Python module) reports "
        "through its session; any other program uses `unisono report`. The workers' output is "
        "shown with the prefix host:rank and kept in logs/rank_N.log.\n\nA worker's environment "
        "has UNISONO_RANK, UNISONO_WORLD_SIZE, UNISONO_LOCAL_RANK, UNISONO_LOCAL_WORLD_SIZE and "
        "UNISONO_NODE_RANK; UNISONO_CONFIG, the config as JSON; UNISONO_CHECKPOINT, the checkpoint "
        "directory to resume from (not set at the start); UNISONO_RUN_DIR, the run's directory; "
        "UNISONO_ATTEMPT, which starts at 1 and grows by one with each restart; and what --backend "
        "requires. docs/environment.md lists them all.\n\nStart a program that creates its own "
        "workers (a trainer in C or Python) directly, not with this command.",
    .options = run_options,
    .values_size = sizeof(run_values),
    .max_args = -1,
    .starts_program = true,
    .completes = "<program>",
    .examples = run_examples,
    .call = call_run,
};
