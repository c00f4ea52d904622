/*
 * fuzz_tune_journal.c - arbitrary lines as records of tune.jsonl, with correct checksums. Reading
 * them yields an experiment or an error. Every query on what was read works, and a tuner that
 * replays the records into its searcher and scheduler ends in the same way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tune/shared.h"
#include "base/fuzz.h"
#include "base/journal.h"
#include "tune/tuner_internal.h"

static const char sample[] =
    "{\"e\":\"experiment\",\"name\":\"x\",\"time\":1.5,\"expected\":2,\"spec\":{\"metric\":"
    "\"loss\","
    "\"mode\":\"min\",\"function\":\"f\",\"seed\":1,\"space\":{\"lr\":{\"$choice\":[{\"$uniform\":["
    "0,1]},2]}},"
    "\"searcher\":{\"type\":\"tpe\"},\"scheduler\":{\"type\":\"asha\"}}}\n"
    "{\"e\":\"trial\",\"t\":0,\"c\":{\"lr\":0.5}}\n{\"e\":\"run\",\"t\":0,\"i\":0,\"time\":2}\n"
    "{\"e\":\"report\",\"t\":0,\"i\":1,\"s\":0.1,\"m\":{\"loss\":0.5,\"a\":{\"b\":2}}}\n"
    "{\"e\":\"checkpoint\",\"t\":0,\"number\":1,\"i\":1,\"path\":\"trial_00000/checkpoints/"
    "checkpoint_000001\"}\n"
    "{\"e\":\"report\",\"t\":0,\"i\":2,\"s\":0.2,\"m\":{\"loss\":0.25},\"d\":\"end\",\"w\":"
    "\"asha\"}\n"
    "{\"e\":\"end\",\"t\":0,\"s\":\"terminated\",\"w\":\"returned\"}\n"
    "{\"e\":\"run\",\"t\":0,\"i\":1}\n{\"e\":\"finish\",\"used\":3}\n";

size_t fuzz_sample(uint8_t *out, size_t room)
{
    return fuzz_copy(out, room, sample, sizeof sample - 1);
}

static int count_report(void *context, int64_t trial, int64_t iteration, const uni_value *metrics,
                        uni_error *err)
{
    FUZZ_PROMISE(trial >= 0 && uni_value_type_of(metrics) == UNI_TYPE_DICT);
    ++*(int *)context;
    return 0;
}

static void ask_everything(const uni_tune_results *results)
{
    int64_t best = 0;
    int reports = 0;
    char *csv = NULL;
    uni_value_free(uni__tune_table(results, true));
    uni_value_free(uni__tune_metric_names(results));
    if (uni_tune_csv(&csv, results, false, NULL) == 0)
        FUZZ_PROMISE(csv);
    free(csv);
    for (int scope = UNI_SCOPE_LAST; scope <= UNI_SCOPE_AVG; scope++)
        if (uni_tune_best(&best, results, NULL, NULL, (uni_scope)scope, NULL) == 0)
            FUZZ_PROMISE(best >= 0 && best < uni_tune_info_of(results)->num_trials);
    for (int64_t i = -1; i <= uni_tune_info_of(results)->num_trials; i++) {
        free(uni_trial_dir(results, i));
        free(uni_trial_checkpoint(results, i, true));
        FUZZ_PROMISE(uni_trial_status_name(uni_trial_info_of(results, i)->status));
    }
    if (uni_tune_reports(results, count_report, &reports, NULL) < 0)
        return;
}

typedef struct line {
    const char *begin;
    size_t size;
} line;

static bool next_line(const uint8_t *data, size_t size, size_t *at, line *out)
{
    if (*at >= size)
        return false;
    const uint8_t *end = memchr(data + *at, '\n', size - *at);
    *out = (line){ (const char *)data + *at, (end ? (size_t)(end - data) : size) - *at };
    *at += out->size + 1;
    return true;
}

static int write_journal(const char *path, const uint8_t *data, size_t size)
{
    uni__journal *journal = NULL;
    line each;
    if (uni__journal_open(&journal, path, UNI__TUNE_KIND, NULL) < 0)
        return -1;
    for (size_t at = 0; next_line(data, size, &at, &each);) {
        uni_value *record = NULL;
        if (uni_json_read(&record, each.begin, each.size, NULL) == 0 &&
            uni_value_type_of(record) == UNI_TYPE_DICT &&
            uni__journal_append(journal, record, false, NULL) < 0)
            at = size;
        uni_value_free(record);
    }
    uni__journal_close(journal);
    return 0;
}

static void replay(const char *dir, const char *path)
{
    uni_tuner *tuner = calloc(1, sizeof *tuner);
    if (!tuner)
        return;
    tuner->dir = strdup(dir);
    tuner->results.experiment.dir = strdup(dir);
    tuner->replaying = true;
    uni_error err = { 0 };
    if (uni__journal_read(path, UNI__TUNE_KIND, uni__tuner_replay, tuner, NULL, &err) < 0)
        FUZZ_PROMISE(err.message[0]);
    uni_tuner_free(tuner);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *dir = fuzz_directory();
    char path[400];
    uni_tune_results *results = NULL;
    uni_error err = { 0 };
    snprintf(path, sizeof path, "%s/%s", dir, UNI__TUNE_JOURNAL);
    unlink(path);
    if (write_journal(path, data, size) < 0)
        return 0;
    if (uni_tune_results_open(&results, dir, NULL, &err) == 0)
        ask_everything(results);
    else
        FUZZ_PROMISE(err.code < 0 && err.message[0]);
    uni_tune_results_free(results);
    replay(dir, path);
    return 0;
}
