/* scale_command.c - `unisono scale`: asks the controller of a run for another number of workers. */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "cli/format.h"
#include "cli/run_view.h"
#include "train/shared.h"

typedef struct scale_values {
    const char *storage, *color, *hosts;
    double timeout;
    bool no_wait;
} scale_values;

static const cli_option scale_options[] = {
    { NULL, "no-wait", 0, CLI_FLAG, offsetof(scale_values, no_wait), NULL, NULL, NULL, NULL,
      "return once the request is written, without waiting for the workers" },
    { NULL, "timeout", 't', CLI_DURATION, offsetof(scale_values, timeout), "TIME", "30s", NULL,
      NULL, "wait at most this long for the group to have that many workers" },
    { NULL, "hosts", 0, CLI_STRING, offsetof(scale_values, hosts), "LIST", NULL, NULL, NULL,
      "over ssh: add these hosts with their slots, as +c:2 or +c:2,d:2, instead of a number" },
    CLI_STORAGE_OPTION(scale_values),
    CLI_COLOR_OPTION(scale_values),
    CLI_END_OPTION,
};

static int64_t members_of(const uni_run *run)
{
    return uni_dict_get_int(uni_run_info_of(run)->description, "members", 0);
}

/* The controller has taken this request, not only an earlier one. */
static bool is_taken(const uni_run *run, int workers)
{
    return uni_dict_get_int(uni_run_info_of(run)->description, "target", 0) == workers;
}

/* What the fit under way cannot do is not waited for. */
static int check_obstacle(const uni_run *run, int workers, uni_error *err)
{
    const char *why = uni_dict_get_string(uni_run_info_of(run)->description, "fixed_by", "");
    if (!is_taken(run, workers) || !why[0])
        return 0;
    return uni_error_set(
        err, UNI_ESTATE, "%s keeps %lld worker%s: %s. The request stays for a later fit",
        uni_run_info_of(run)->id, (long long)members_of(run), members_of(run) == 1 ? "" : "s", why);
}

/* Replaces *run by its state with that many workers, or after the timeout. */
static int wait_for_workers(uni_run **run, int workers, double timeout, uni_error *err)
{
    uint64_t deadline = uni__monotonic_ns() + (uint64_t)(timeout * 1e9);
    while (!is_taken(*run, workers) || members_of(*run) != workers) {
        UNI_TRY(check_obstacle(*run, workers, err));
        const char *id = uni_run_info_of(*run)->id;
        if (!uni_run_is_live(*run))
            return uni_error_set(err, UNI_ESTATE, "%s ended with %lld workers", id,
                                 (long long)members_of(*run));
        if (uni__monotonic_ns() > deadline) {
            char text[CLI_SHORT];
            return uni_error_set(err, UNI_ETIMEOUT,
                                 "after %s %s has %lld of %d workers: their number changes only "
                                 "while the engine's fit trains under multi_worker, without "
                                 "gradient_accumulation_steps. The run keeps the request",
                                 cli_duration(timeout, text), id, (long long)members_of(*run),
                                 workers);
        }
        nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000000 }, NULL);
        uni_run *again = NULL;
        UNI_TRY(uni_run_open(&again, uni_run_info_of(*run)->dir, NULL, err));
        uni_run_close(*run);
        *run = again;
    }
    return 0;
}

static int read_number(const char *text, int *out, uni_error *err)
{
    char *end = NULL;
    long number = strtol(text, &end, 10);
    if (end == text || *end || number < 1 || number > 65536)
        return uni_error_set(err, UNI_EINVAL, "\"%s\" is not a number of workers", text);
    *out = (int)number;
    return 0;
}

static int target_of(const uni_run *run)
{
    return (int)uni_dict_get_int(uni_run_info_of(run)->description, "target", 0);
}

#define TAKEN_NS 3000000000ull

/* Until the controller wants more workers: how many. */
static int wait_until_taken(const uni_run *run, int *workers, uni_error *err)
{
    uint64_t deadline = uni__monotonic_ns() + TAKEN_NS;
    int before = target_of(run);
    do {
        uni_run *now = NULL;
        nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000000 }, NULL);
        UNI_TRY(uni_run_open(&now, uni_run_info_of(run)->dir, NULL, err));
        *workers = target_of(now);
        uni_run_close(now);
    } while (*workers == before && uni__monotonic_ns() < deadline);
    if (*workers != before)
        return 0;
    return uni_error_set(err, UNI_ESTATE,
                         "%s wants as many workers as before: either it wanted those of the host "
                         "already, or its output says why the host is not added",
                         uni_run_info_of(run)->id);
}

/* "+c:2": the sign says that the others stay. */
static int add_hosts(uni_run **run, const scale_values *values, uni_error *err)
{
    int workers = 0;
    if (values->hosts[0] != '+')
        return uni_error_set(err, UNI_EINVAL,
                             "--hosts %s: write +HOST:SLOTS; hosts can be added, not replaced",
                             values->hosts);
    UNI_TRY(uni__run_add_hosts(*run, values->hosts + 1, err));
    if (values->no_wait)
        return 0;
    UNI_TRY(wait_until_taken(*run, &workers, err));
    return wait_for_workers(run, workers, values->timeout, err);
}

static int scale_hosts(cli_context *context, const cli_parsed *parsed, uni_error *err)
{
    const scale_values *values = parsed->values;
    uni_run *run = NULL;
    if (parsed->num_args > 1)
        return uni_error_set(err, UNI_EINVAL,
                             "give a number of workers or --hosts, not both: a host brings its "
                             "slots");
    UNI_TRY(uni_run_open(&run, parsed->args[0], values->storage, err));
    int status = add_hosts(&run, values, err);
    if (status == 0 && values->no_wait)
        fprintf(context->out.out, "%s: %s asked for\n", uni_run_info_of(run)->id, values->hosts);
    else if (status == 0)
        fprintf(context->out.out, "%s: %lld workers\n", uni_run_info_of(run)->id,
                (long long)members_of(run));
    uni_run_close(run);
    return status;
}

static int scale(cli_context *context, const cli_parsed *parsed, uni_error *err)
{
    const scale_values *values = parsed->values;
    uni_run *run = NULL;
    int workers = 0;
    if (values->hosts)
        return scale_hosts(context, parsed, err);
    if (parsed->num_args < 2)
        return uni_error_set(err, UNI_EINVAL,
                             "say how many workers, or which hosts to add (--hosts +c:2)");
    UNI_TRY(read_number(parsed->args[1], &workers, err));
    UNI_TRY(uni_run_open(&run, parsed->args[0], values->storage, err));
    int status = uni__run_scale(run, workers, err);
    if (status == 0 && !values->no_wait)
        status = wait_for_workers(&run, workers, values->timeout, err);
    if (status == 0)
        fprintf(context->out.out, "%s: %d worker%s%s\n", uni_run_info_of(run)->id, workers,
                workers == 1 ? "" : "s", values->no_wait ? " asked for" : "");
    uni_run_close(run);
    return status;
}

static int call_scale(cli_context *context, const cli_parsed *parsed)
{
    uni_error err = { 0 };
    return scale(context, parsed, &err) < 0 ? cli_fail(context, "scale", &err) : UNI_EXIT_OK;
}

static const cli_example scale_examples[] = {
    { "unisono run --workers 1:4 -n 2 --name digits -- ./train", "begins with two workers" },
    { "unisono scale digits 4", "two more join; those that are there keep training" },
    { "unisono scale digits --hosts +c:2", "over ssh: two more join on another host" },
    { NULL, NULL },
};

const cli_command cli_scale_command = {
    .name = "scale",
    .arguments = "RUN [N]",
    .summary = "change the number of workers of a run while it trains",
    .description = "For runs that were started with --workers MIN:MAX and train with the engine's "
                   "fit under multi_worker. Workers join or leave between two steps; the others "
                   "keep their processes. The global batch and the order of the samples stay, so "
                   "the result is, to rounding, that of a run with any fixed number.",
    .options = scale_options,
    .values_size = sizeof(scale_values),
    .min_args = 1,
    .max_args = 2,
    .completes = "<run>",
    .examples = scale_examples,
    .call = call_scale,
};
