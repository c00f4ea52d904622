/* rm_command.c - `unisono rm`: removes runs with their logs and checkpoints, after asking. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/format.h"
#include "cli/run_view.h"
#include "train/run_reader.h"

typedef struct rm_values {
    const char *storage, *color;
    bool yes;
} rm_values;

static const cli_option rm_options[] = {
    { NULL, "yes", 'y', CLI_FLAG, offsetof(rm_values, yes), NULL, NULL, NULL, NULL,
      "do not ask for confirmation (required when stdin is not a terminal)" },
    CLI_STORAGE_OPTION(rm_values),
    CLI_COLOR_OPTION(rm_values),
    CLI_END_OPTION,
};

static int add_size(void *context, const char *relative_path, const char *full_path, uint64_t size,
                    uni_error *err)
{
    (void)relative_path;
    (void)full_path;
    (void)err;
    *(double *)context += (double)size;
    return 0;
}

static int ask(cli_context *context, const uni_run *run, double bytes, uni_error *err)
{
    if (!isatty(STDIN_FILENO))
        return uni_error_set(
            err, UNI_EINVAL,
            "cannot ask for confirmation to remove %s because stdin is not a terminal: give --yes",
            uni_run_info_of(run)->id);
    char size[CLI_SHORT], answer[16] = "";
    uni_value *checkpoints = cli_checkpoints(run);
    fprintf(context->out.out, "Remove %s (%s, %s, %zu checkpoint%s)? [y/N] ",
            uni_run_info_of(run)->id, uni_run_status_name(uni_run_info_of(run)->status),
            cli_bytes(bytes, size), uni_list_size(checkpoints),
            uni_list_size(checkpoints) == 1 ? "" : "s");
    uni_value_free(checkpoints);
    fflush(context->out.out);
    if (!fgets(answer, sizeof answer, stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
        return uni_error_set(err, UNI_ECANCELED, "%s was not removed", uni_run_info_of(run)->id);
    return 0;
}

static int remove_one(cli_context *context, const char *name, const rm_values *values,
                      uni_error *err)
{
    if (name[0] == '\0') /* an unset "$RUN" in a script */
        return uni_error_set(err, UNI_EINVAL, "the run name is empty: say which run to remove");
    uni_run *run = NULL;
    double bytes = 0;
    int status = uni__run_open_own(&run, name, values->storage, err);
    if (status == 0 && uni_run_is_live(run))
        status =
            uni_error_set(err, UNI_EBUSY, "%s is running: stop it first with `unisono stop %s`",
                          uni_run_info_of(run)->id, uni_run_info_of(run)->id);
    if (status == 0 && uni__walk_files(uni_run_info_of(run)->dir, add_size, &bytes, NULL) < 0)
        bytes = 0; /* what cannot be read can still be removed, or says why not */
    if (status == 0 && !values->yes)
        status = ask(context, run, bytes, err);
    if (status == 0)
        status = uni_run_remove(run, err);
    if (status == 0) {
        char size[CLI_SHORT];
        fprintf(context->out.out, "removed %s (%s)\n", uni_run_info_of(run)->id,
                cli_bytes(bytes, size));
    }
    uni_run_close(run);
    return status;
}

static int call_rm(cli_context *context, const cli_parsed *parsed)
{
    int code = UNI_EXIT_OK;
    for (int i = 0; i < parsed->num_args; i++) {
        uni_error err = { 0 };
        if (remove_one(context, parsed->args[i], parsed->values, &err) < 0)
            code = cli_fail(context, "rm", &err);
    }
    return code;
}

static const cli_example rm_examples[] = {
    { "unisono rm digits/run_001", "one run; asks for confirmation" },
    { "unisono rm --yes $(unisono ls -q --status failed)", "all failed runs" },
    { NULL, NULL },
};

const cli_command cli_rm_command = {
    .name = "rm",
    .arguments = "RUN...",
    .summary = "remove runs with their logs and checkpoints",
    .description =
        "Removes the run's directory, and with its last run the directory of that name. Running "
        "runs are not removed: stop them first. NAME alone means its newest run.",
    .options = rm_options,
    .values_size = sizeof(rm_values),
    .min_args = 1,
    .max_args = -1,
    .completes = "<run>",
    .examples = rm_examples,
    .call = call_rm,
};
