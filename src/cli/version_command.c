/* version_command.c - `unisono version`. */
#include <unisono/version.h>

#include "cli/command.h"

typedef struct version_values {
    bool json;
    const char *color;
} version_values;

static const cli_option version_options[] = {
    CLI_JSON_OPTION(version_values),
    CLI_COLOR_OPTION(version_values),
    CLI_END_OPTION,
};

static int call_version(cli_context *context, const cli_parsed *parsed)
{
    const version_values *values = parsed->values;
    if (!values->json) {
        fprintf(context->out.out, "unisono %s\n", uni_version());
        return UNI_EXIT_OK;
    }
    uni_value *answer = uni_value_dict();
    if (uni_dict_take(answer, "version", uni_value_string(uni_version())) < 0 ||
        uni_dict_take(answer, "run_format", uni_value_int(1)) < 0) {
        uni_value_free(answer);
        answer = NULL;
    }
    return cli_print_json(context, answer);
}

static const cli_example version_examples[] = {
    { "unisono version --json", "for scripts" },
    { NULL, NULL },
};

const cli_command cli_version_command = {
    .name = "version",
    .arguments = "",
    .summary = "print the version",
    .description = "Prints the version of the command and of the library in it.",
    .options = version_options,
    .values_size = sizeof(version_values),
    .examples = version_examples,
    .call = call_version,
};
