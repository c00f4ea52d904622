/* tune_common.c - see tune_common.h. */
#include <math.h>
#include <signal.h>

#include "tune/shared.h"
#include "tune_common.h"

/* ---- train functions ---- */

/* loss = x^2 + 1/epoch over config "epochs" epochs (default 4), with a checkpoint each when "save" is set. */
static int square(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    double x = uni_dict_get_float(config, "x", 0);
    int64_t epochs = uni_dict_get_int(config, "epochs", 4), first = 0;
    bool save = uni_dict_get_bool(config, "save", false);
    uni_value *state = NULL;
    UNI_TRY(uni_session_load_checkpoint(&state, session, err));
    first = uni_dict_get_int(state, "epoch", 0);
    uni_value_free(state);
    for (int64_t epoch = first + 1; epoch <= epochs; epoch++) {
        uni_value *metrics = uni_value_dict(), *saved = save ? uni_value_dict() : NULL;
        int status = uni_dict_take(metrics, "loss", uni_value_float(x * x + 1.0 / (double)epoch));
        status |= uni_dict_take(metrics, "x", uni_value_float(x));
        if (save)
            status |= uni_dict_take(saved, "epoch", uni_value_int(epoch));
        status =
            status < 0
                ? UNI_ENOMEM
                : uni_session_report(session, metrics,
                                     save ? &(uni_checkpoint_source){ .dict = saved } : NULL, err);
        uni_value_free(metrics);
        uni_value_free(saved);
        if (uni_dict_get_int(config, "slow_ms", 0))
            scenario_sleep_ms((int)uni_dict_get_int(config, "slow_ms", 0));
        UNI_TRY(status);
    }
    return 0;
}

static int dies(uni_session *session, uni_value **result, uni_error *err)
{
    int64_t how = uni_dict_get_int(uni_session_info_of(session)->config, "how", 0);
    if (how == 1)
        raise(SIGKILL);
    if (how == 2 && uni_session_info_of(session)->attempt == 1)
        return uni_error_set(err, UNI_EINVAL, "the first time it goes wrong");
    if (how == 3)
        return uni_error_set(err, UNI_EINVAL, "it always goes wrong");
    printf("how %lld\n", (long long)how);
    return uni_session_report_numbers(session, 1, (const char *const[]){ "loss" },
                                      (const double[]){ (double)how }, err);
}

static int silent(uni_session *session, uni_value **result, uni_error *err)
{
    return 0;
}

const uni_function functions[] = {
    { "square", square }, { "dies", dies }, { "silent", silent }, { NULL, NULL }
};

/* ---- helpers ---- */

uni_value *tune_json(const char *text)
{
    uni_value *value = NULL;
    uni_error err = { 0 };
    CHECK_OK(uni_json_read(&value, text, strlen(text), &err), &err);
    return value;
}

/* What options point to must live as long as the tuner: specs stay until the process ends. */
static struct {
    uni_value *dict;
    uni__tune_spec *spec;
} kept[16];
static size_t num_kept;

uni_tuner *tune_tuner(uni_program *program, const char *spec_text)
{
    uni_tuner *tuner = NULL;
    uni__tune_spec *spec = NULL;
    uni_error err = { 0 };
    uni_value *dict = tune_json(spec_text);
    CHECK_OK(uni__tune_spec_read(&spec, dict, &err), &err);
    CHECK(num_kept < sizeof kept / sizeof kept[0]);
    kept[num_kept].dict = dict;
    kept[num_kept++].spec = spec;
    uni_tuner_options options = *uni__tune_spec_options(spec);
    options.main = program;
    options.storage_path = options.storage_path ? options.storage_path : scenario_storage();
    CHECK_OK(uni_tuner_new(&tuner, &options, &err), &err);
    return tuner;
}

uni_tuner *tune_fitted(uni_program *program, const char *spec_text)
{
    uni_error err = { 0 };
    uni_tuner *tuner = tune_tuner(program, spec_text);
    CHECK_OK(uni_tuner_fit(tuner, &err), &err);
    return tuner;
}
