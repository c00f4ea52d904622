/*
 * run_command.c - `unisono run`: starts the workers of a program and watches over them.
 *
 * The trainer does the work (its controller has a thread of its own, the sinks another); this
 * process waits in uni_trainer_fit, a third thread prints what the workers write. SIGINT and
 * SIGTERM are the trainer's.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <unisono/log.h>

#include "cli/run_command.h"
#include "train/hosts_join.h"

#define AT(field) offsetof(run_values, field)

static const cli_option run_options[] = {
    { "Workers", "num-workers", 'n', CLI_INT, AT(num_workers), "N", "1", "UNISONO_NUM_WORKERS",
      NULL, "how many workers to start; each gets its rank in UNISONO_RANK and RANK" },
    { NULL, "servers", 0, CLI_INT, AT(servers), "N", "0", NULL, NULL,
      "parameter servers besides the workers, and a chief that coordinates them: roles in "
      "UNISONO_ROLE and TF_CONFIG; a worker or server that dies is restarted alone" },
    { NULL, "evaluators", 0, CLI_INT, AT(evaluators), "N", "0", NULL, NULL,
      "0 or 1 process with the role evaluator (for TF_CONFIG)" },
    { NULL, "backend", 'b', CLI_CHOICE, AT(backend), "NAME", "none", NULL,
      "none|native|tensorflow|torch|horovod",
      "whose environment the workers get: TF_CONFIG for tensorflow, MASTER_ADDR and MASTER_PORT "
      "for torch, HOROVOD_* for "
      "horovod" },
    { NULL, "cpus", 0, CLI_NUMBER, AT(cpus), "N", NULL, NULL, NULL,
      "CPUs of each worker, for OMP_NUM_THREADS (default: an equal share)" },
    { NULL, "memory", 0, CLI_SIZE, AT(memory), "SIZE", NULL, NULL, NULL,
      "limit of each worker's address space, for example 2G (default: none)" },
    { NULL, "use-gpu", 0, CLI_FLAG, AT(use_gpu), NULL, NULL, NULL, NULL,
      "one GPU for each worker, by CUDA_VISIBLE_DEVICES" },
    { NULL, "env", 'e', CLI_LIST, AT(env), "NAME[=VALUE]", NULL, NULL, NULL,
      "add to the workers' environment; without =VALUE the value comes from this command's own, "
      "and "
      "is not in the list of processes" },
    { NULL, "env-file", 0, CLI_STRING, AT(env_file), "FILE", NULL, NULL, "<file>",
      "the same from a file of lines NAME=VALUE or NAME, # for comments; refused when others can "
      "read "
      "it. Only the names are recorded" },
    { NULL, "chdir", 0, CLI_STRING, AT(chdir), "DIR", NULL, NULL, "<dir>",
      "working directory of the workers" },
    { NULL, "launcher", 0, CLI_STRING, AT(launcher), "NAME", "local", "UNISONO_LAUNCHER", NULL,
      "how workers come to be: local, mpi (mpirun on --hosts) or slurm (srun in this allocation); "
      "inside "
      "a foreign mpirun or srun it is theirs" },
    { NULL, "hosts", 0, CLI_STRING, AT(hosts), "LIST", NULL, NULL, NULL,
      "mpi: which hosts with how many workers each, as a:2,b:2; more slots than workers are "
      "spare" },
    { NULL, "interface", 0, CLI_STRING, AT(interface), "NAME", NULL, NULL, NULL,
      "where other hosts reach this machine: an interface, an address, or a subnet as 10.1.0.0/16 "
      "(default: probed)" },
    { NULL, "encrypt", 0, CLI_FLAG, AT(encrypt), NULL, NULL, NULL, NULL,
      "seal all that goes between hosts, gradients over MPI too, and refuse backends whose own "
      "connections cannot be sealed" },
    { NULL, "no-seal", 0, CLI_FLAG, AT(no_seal), NULL, NULL, NULL, NULL,
      "leave what goes between this machine and the hosts readable; it stays authenticated" },
    { NULL, "secret-file", 0, CLI_STRING, AT(secret_file), "FILE", NULL, NULL, "<file>",
      "a file of at least 32 random bytes, mode 0600, at the same path on every host: only hosts "
      "that have it can join (default: $UNISONO_SECRET_FILE)" },
    { NULL, "min-workers", 0, CLI_INT, AT(min_workers), "N", "0", NULL, NULL,
      "when a host is lost, go on with fewer workers, but not fewer than this (default: as many as "
      "asked for)" },

    { NULL, "as-ray", 0, CLI_FLAG, AT(as_ray), NULL, NULL, NULL, NULL,
      "the program is a Python script of Ray's that makes its own workers: it is run once, by "
      "$UNISONO_PYTHON (default python3), and `import ray` means unisono in it and in its "
      "workers" },

    { "The run", "name", 0, CLI_STRING, AT(name), "NAME", NULL, NULL, NULL,
      "name of the experiment; used again it gets the next run number (default: train_ and the "
      "date)" },
    CLI_STORAGE_OPTION(run_values),
    { NULL, "config", 0, CLI_STRING, AT(config), "FILE", NULL, NULL, "<file>",
      "JSON dictionary that the workers get as their config" },
    { NULL, "set", 's', CLI_LIST, AT(set), "KEY=VALUE", NULL, NULL, NULL,
      "set one key of the config; dots reach into dictionaries (model.lr=0.1); the value is JSON, "
      "or else text" },
    { NULL, "sink", 0, CLI_LIST, AT(sink), "LIST", "csv", NULL, "csv|json|print|tensorboard|mlflow",
      "who gets the reports, besides results.jsonl: csv, json, print, tensorboard, mlflow, or "
      "none; commas between" },

    { "When something dies", "max-failures", 'f', CLI_INT, AT(max_failures), "N", "3", NULL, NULL,
      "restarts of the group, from the last complete checkpoint; 0: none, -1: without limit" },
    { NULL, "no-retry-errors", 0, CLI_FLAG, AT(no_retry_errors), NULL, NULL, NULL, NULL,
      "an error that the train function returns ends the run; only deaths are retried" },
    { NULL, "time-limit", 't', CLI_DURATION, AT(time_limit), "TIME", NULL, NULL, NULL,
      "stop all ranks together after 90s, 5m, 2h ..." },
    { NULL, "progress-timeout", 0, CLI_DURATION, AT(progress_timeout), "TIME", NULL, NULL, NULL,
      "take the run for stuck when no rank reports for this long" },
    { NULL, "grace", 0, CLI_DURATION, AT(grace), "TIME", "10s", NULL, NULL,
      "time to save a last checkpoint after a stop was asked for" },

    { "Checkpoints", "keep", 'k', CLI_STRING, AT(keep), "N", "all", NULL, NULL,
      "how many checkpoints stay: a number, all, or none" },
    { NULL, "keep-best", 0, CLI_STRING, AT(keep_best), "METRIC:ORDER", NULL, NULL, NULL,
      "which ones --keep keeps: the best by a metric, for example loss:min or accuracy:max "
      "(default: the newest)" },
    { NULL, "sync-checkpoints", 0, CLI_FLAG, AT(sync_checkpoints), NULL, NULL, NULL, NULL,
      "report() returns when its checkpoint is complete on the disk, not when it is taken; all "
      "ranks must report equally often" },
    { NULL, "resume", 0, CLI_OPTIONAL, AT(resume), "RUN", NULL, NULL, "<run>",
      "go on in this run (default: the newest that can) from its last complete checkpoint; "
      "program, "
      "workers, launcher, hosts, backend, config, resources, sinks, time limit, failure budget and "
      "checkpoint policy are the run's own unless given here. Of --env only the names are "
      "recorded, because values may be secrets: give them again" },
    { NULL, "from-checkpoint", 0, CLI_STRING, AT(from_checkpoint), "DIR", NULL, NULL, "<dir>",
      "begin a new run from this checkpoint, or from the last one of this run" },

    { "Output", "quiet", 'q', CLI_FLAG, AT(quiet), NULL, NULL, NULL, NULL,
      "only say how it ended when it ended badly; logs are written all the same" },
    { NULL, "verbose", 'v', CLI_FLAG, AT(verbose), NULL, NULL, NULL, NULL,
      "say what unisono itself does" },
    { NULL, "log-cap", 0, CLI_SIZE, AT(log_cap), "SIZE", "64M", NULL, NULL,
      "size of a rank's log file, after which older lines move to rank_N.log.1" },
    { NULL, "dry-run", 0, CLI_FLAG, AT(dry_run), NULL, NULL, NULL, NULL,
      "print what would be started, with each rank's environment, and start nothing" },
    { NULL, "json", 0, CLI_FLAG, AT(json), NULL, NULL, NULL, NULL,
      "with --dry-run: the plan as JSON; otherwise run.json on stdout at the end, workers' output "
      "nowhere but in the logs" },
    CLI_COLOR_OPTION(run_values),
    CLI_END_OPTION,
};

/* An error before there was a run directory. */
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
    if (uni_trainer_plan(trainer, &request->run, &plan, &err) < 0)
        return not_started(context, &err);
    return cli_run_show_plan(context, values, request, plan);
}

static int print_result(cli_context *context, const char *run_dir)
{
    uni_run *run = NULL;
    uni_error err = { 0 };
    if (uni_run_open(&run, run_dir, NULL, &err) < 0)
        return cli_fail(context, "run", &err);
    int code = cli_print_json(context, uni_value_copy(uni_run_description(run)));
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
    request->run.num_sinks = output.num_sinks ? output.num_sinks : -1;
    int status = uni_trainer_fit(trainer, &request->run, &result, &err);
    request->run.sinks = NULL; /* they end here */
    request->run.num_sinks = 0;
    cli_run_output_close(&output);
    int code = UNI_EXIT_OK;
    if (!result) {
        code = status < 0 ? not_started(context, &err) : UNI_EXIT_INTERNAL;
    } else {
        code = uni_result_exit_code(result);
        if (status < 0 && code == UNI_EXIT_OK)
            code = UNI_EXIT_INTERNAL;
        cli_run_conclude(context, values, uni_result_run_dir(result), status < 0 ? &err : NULL);
        if (values->json && print_result(context, uni_result_run_dir(result)) &&
            code == UNI_EXIT_OK)
            code = UNI_EXIT_INTERNAL;
    }
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

/* A closed terminal stops the run as SIGTERM does (unless nohup said to go on); a reader that went
 * away (| head) does not: logs and reports are files. Handlers, not SIG_IGN, because workers would
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
        int status = cli_run_as_ray(parsed, run_options, &err); /* comes back only to say why not */
        return status < 0 ? not_started(context, &err) : UNI_EXIT_INTERNAL;
    }
    run_request request;
    uni_trainer *trainer = NULL;
    int code = UNI_EXIT_OK;
    if (values->verbose)
        uni_log_level_set(UNI_LOG_DEBUG);
    /* `mpirun unisono run`: rank 0 controls, the others lend it their places. */
    if (uni__hosts_foreign_rank() > 0 && !values->dry_run &&
        (!cli_given(parsed, "launcher") || strcmp(values->launcher, "local") != 0)) {
        return uni__hosts_join_foreign(values->storage, &err) < 0 ? not_started(context, &err)
                                                                  : UNI_EXIT_INTERNAL;
    }
    if (cli_run_request(&request, parsed, &err) < 0 ||
        uni_trainer_new(&trainer, &request.trainer, &err) < 0)
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
    { "unisono run --resume digits", "go on with what was stopped, killed or interrupted" },
    { "unisono run --as-ray train.py --num-workers 2", "a script of Ray's, untouched" },
    { "unisono run -n 8 --dry-run -- ./train", "what would be started" },
    { NULL, NULL },
};

const cli_command cli_run_command = {
    .name = "run",
    .arguments = "-- PROGRAM [ARG...]",
    .summary = "start N workers of a program and watch over them",
    .description =
        "Starts N copies of a program, in any language, and makes a run directory for "
        "their logs, reports and checkpoints. When a "
        "worker dies, all are started again from the last complete checkpoint, within "
        "--max-failures; the first cause is named in "
        "plain words. Ctrl-C asks all ranks to stop together, a second one ends them at "
        "once. No process is left behind.\n\n"
        "A program that links libunisono (or imports the Python module) reports through "
        "its session; any other one by `unisono "
        "report`. What the workers write is shown with host:rank in front, and kept in "
        "logs/rank_N.log.\n\n"
        "A worker finds in its environment: UNISONO_RANK, UNISONO_WORLD_SIZE, "
        "UNISONO_LOCAL_RANK, UNISONO_LOCAL_WORLD_SIZE and UNISONO_NODE_RANK; "
        "UNISONO_CONFIG, the config as JSON; UNISONO_CHECKPOINT, the checkpoint directory "
        "to go on from (not set at the beginning); UNISONO_RUN_DIR, the run's directory; "
        "UNISONO_ATTEMPT, 1 and one more after each restart; and what --backend asks for. "
        "docs/environment.md has them all.\n\n"
        "A program that starts its own workers (a trainer in C or Python) is started by "
        "itself, not by this command.",
    .options = run_options,
    .values_size = sizeof(run_values),
    .max_args = -1,
    .starts_program = true,
    .completes = "<program>",
    .examples = run_examples,
    .call = call_run,
};
