/*
 * tensorboard.c - reports as TensorBoard events: numbers as scalars, lists and arrays of numbers as
 * histograms, the config as the session of the hparams plugin.
 *
 * One Event with one Summary per report; its arrays are kept from report to report. Tags are PREFIX
 * and the metric's name, nested ones joined by '/'. The step is the iteration; _timestamp is the
 * event's time. If an attempt goes back to an earlier step, a START event tells readers to drop
 * what they have from there on. A run writes no experiment summary: without one, TensorBoard finds
 * the hyperparameters and metrics of all runs by itself (for a tuner, see
 * tensorboard_experiment.c).
 *
 * A histogram cannot represent NaN and infinities; if a list has any, their number is the scalar
 * TAG/nonfinite.
 *
 * Thread: the sink thread.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/element.h"
#include "base/file.h"
#include "base/grow.h"
#include "track/sink.h"
#include "track/tensorboard_file.h"
#include "base/options.h"

#define BUCKETS 30

typedef struct tag {
    char *metric, *tag;
} tag;

typedef struct histogram {
    Uni__Tb__Histogram message;
    double limits[BUCKETS], counts[BUCKETS];
    char *nonfinite_tag; /* NULL if all numbers are finite */
} histogram;

typedef struct tensorboard {
    char *dir, *prefix;
    int rank;
    uni__event_file file;
    tag *tags; /* in the order in which metrics were first seen */
    size_t num_tags, tags_capacity, guess;
    Uni__Tb__Value *values;
    Uni__Tb__Value **pointers;
    size_t num_values, values_capacity;
    histogram **histograms; /* of the current report */
    size_t num_histograms, histograms_capacity;
    uni__text name;
    int attempt;
    int64_t last_step;
    double started; /* 0: use the time of the start call */
} tensorboard;

/* ---- growing arrays ---- */

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory for a report in the TensorBoard sink");
}

static int tag_of(tensorboard *t, const char *metric, const char **out, uni_error *err)
{
    size_t i = t->guess;
    if (i >= t->num_tags || strcmp(t->tags[i].metric, metric) != 0)
        for (i = 0; i < t->num_tags && strcmp(t->tags[i].metric, metric) != 0;)
            i++;
    if (i == t->num_tags) {
        tag *grown = uni__grown(t->tags, t->num_tags, &t->tags_capacity, sizeof *grown);
        if (!grown)
            return no_memory(err);
        t->tags = grown;
        size_t before = strlen(t->prefix), length = strlen(metric);
        char *text = malloc(before + length + 1), *key = strdup(metric);
        if (text == NULL || key == NULL) {
            free(text);
            free(key);
            return no_memory(err);
        }
        memcpy(text, t->prefix, before);
        memcpy(text + before, metric, length + 1);
        t->tags[t->num_tags++] = (tag){ key, text };
    }
    t->guess = i + 1;
    *out = t->tags[i].tag;
    return 0;
}

static int add_value(tensorboard *t, const char *name, Uni__Tb__Value **out, uni_error *err)
{
    Uni__Tb__Value *grown =
        uni__grown(t->values, t->num_values, &t->values_capacity, sizeof *grown);
    if (!grown)
        return no_memory(err);
    t->values = grown;
    *out = &t->values[t->num_values++];
    uni__tb__value__init(*out);
    (*out)->tag = (char *)name;
    return 0;
}

static int add_scalar(tensorboard *t, const char *name, double number, uni_error *err)
{
    Uni__Tb__Value *value = NULL;
    UNI_TRY(add_value(t, name, &value, err));
    value->value_case = UNI__TB__VALUE__VALUE_SIMPLE_VALUE;
    value->simple_value = (float)number;
    return 0;
}

/* ---- histograms ---- */

/* The index-th number of a list or an array; false if it is not a number. */
static bool number_at(const uni_value *list, size_t index, double *out)
{
    uni_array *array = uni_value_as_array(list);
    const uni_value *item = array == NULL ? uni_list_get(list, index) : NULL;
    if (array == NULL && !uni_value_is_number(item))
        return false;
    *out = array != NULL ? uni__element(uni_array_data(array), uni_array_dtype(array), index)
                         : uni_value_as_float(item, NAN);
    return true;
}

/* BUCKETS of equal width between the smallest and the largest finite number. */
static bool fill(histogram *h, const uni_value *list, size_t count, size_t *nonfinite)
{
    Uni__Tb__Histogram *m = &h->message;
    double number;
    m->min = INFINITY;
    m->max = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        /* A list with anything else is not a histogram. */
        if (!number_at(list, i, &number))
            return false;
        if (!isfinite(number)) {
            ++*nonfinite;
            continue;
        }
        m->num++;
        m->sum += number;
        m->sum_squares += number * number;
        m->min = fmin(m->min, number);
        m->max = fmax(m->max, number);
    }
    if (m->num == 0)
        m->min = m->max = 0;
    double width = m->max / BUCKETS - m->min / BUCKETS;
    m->n_bucket = m->n_bucket_limit = width > 0 && isfinite(width) ? BUCKETS : 1;
    m->bucket = h->counts;
    m->bucket_limit = h->limits;
    for (size_t i = 0; i < m->n_bucket; i++)
        h->limits[i] = i + 1 == m->n_bucket ? m->max : m->min + width * (double)(i + 1);
    for (size_t i = 0; i < count; i++) {
        if (!number_at(list, i, &number) || !isfinite(number))
            continue;
        size_t bucket = m->n_bucket == 1 ? 0 : (size_t)fmax(ceil((number - m->min) / width) - 1, 0);
        h->counts[bucket < m->n_bucket ? bucket : m->n_bucket - 1]++;
    }
    return true;
}

static int add_histogram(tensorboard *t, const char *name, const uni_value *list, size_t count,
                         uni_error *err)
{
    size_t nonfinite = 0;
    histogram **grown =
        uni__grown(t->histograms, t->num_histograms, &t->histograms_capacity, sizeof(histogram *));
    if (!grown)
        return no_memory(err);
    t->histograms = grown;
    histogram *h = calloc(1, sizeof *h);
    if (h == NULL)
        return no_memory(err);
    t->histograms[t->num_histograms++] = h;
    uni__tb__histogram__init(&h->message);
    if (!fill(h, list, count, &nonfinite))
        return 0;
    Uni__Tb__Value *value = NULL;
    UNI_TRY(add_value(t, name, &value, err));
    value->value_case = UNI__TB__VALUE__VALUE_HISTO;
    value->histo = &h->message;
    if (nonfinite == 0)
        return 0;
    size_t length = strlen(name) + sizeof "/nonfinite";
    h->nonfinite_tag = malloc(length);
    if (h->nonfinite_tag == NULL)
        return no_memory(err);
    memcpy(h->nonfinite_tag, name, strlen(name));
    strcpy(h->nonfinite_tag + strlen(name), "/nonfinite");
    return add_scalar(t, h->nonfinite_tag, (double)nonfinite, err);
}

/* ---- reports ---- */

static bool is_bookkeeping(const char *metric)
{
    return strcmp(metric, "_pid") == 0 || strcmp(metric, "_timestamp") == 0 ||
           strcmp(metric, "_time_total_s") == 0 || strcmp(metric, "_training_iteration") == 0;
}

static int take_metric(void *context, const char *metric, const uni_value *leaf, uni_error *err)
{
    tensorboard *t = context;
    const char *name = NULL;
    uni_array *array = uni_value_as_array(leaf);
    size_t count = array != NULL ? uni_array_count(array) : uni_list_size(leaf);
    /* Strings, nulls and empty lists cannot be shown. */
    if (is_bookkeeping(metric) || (!uni_value_is_number(leaf) && count == 0))
        return 0;
    UNI_TRY(tag_of(t, metric, &name, err));
    return count > 0 ? add_histogram(t, name, leaf, count, err)
                     : add_scalar(t, name, uni_value_as_float(leaf, NAN), err);
}

static void forget_report(tensorboard *t)
{
    for (size_t i = 0; i < t->num_histograms; i++) {
        free(t->histograms[i]->nonfinite_tag);
        free(t->histograms[i]);
    }
    t->num_histograms = t->num_values = t->guess = 0;
}

static int add_event(tensorboard *t, Uni__Tb__Event *event, double time, int64_t step,
                     uni_error *err)
{
    event->wall_time = time;
    event->step = step;
    return uni__event_file_add(&t->file, event, err);
}

static int write_summary(tensorboard *t, double time, int64_t step, uni_error *err)
{
    Uni__Tb__Event event = UNI__TB__EVENT__INIT;
    Uni__Tb__Summary summary = UNI__TB__SUMMARY__INIT;
    if (t->num_values == 0)
        return 0;
    Uni__Tb__Value **pointers = realloc(t->pointers, t->values_capacity * sizeof(Uni__Tb__Value *));
    if (pointers == NULL)
        return no_memory(err);
    t->pointers = pointers;
    for (size_t i = 0; i < t->num_values; i++)
        pointers[i] = &t->values[i];
    summary.n_value = t->num_values;
    summary.value = pointers;
    event.what_case = UNI__TB__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    return add_event(t, &event, time, step, err);
}

static int write_restart(tensorboard *t, double time, int64_t step, uni_error *err)
{
    Uni__Tb__Event event = UNI__TB__EVENT__INIT;
    Uni__Tb__SessionLog log = UNI__TB__SESSION_LOG__INIT;
    log.status = UNI__TB__SESSION_LOG__STATUS__START;
    event.what_case = UNI__TB__EVENT__WHAT_SESSION_LOG;
    event.session_log = &log;
    return add_event(t, &event, time, step, err);
}

static int tensorboard_result(void *self, const uni_reports *reports, uni_error *err)
{
    tensorboard *t = self;
    const uni_value *metrics = uni__reports_rank(reports, t->rank);
    if (metrics == NULL)
        return 0;
    const uni_value *stamp = uni_dict_get(metrics, "_timestamp");
    double time = uni_value_is_number(stamp) ? uni_value_as_float(stamp, 0) : uni__wall_seconds();
    if (reports->attempt != t->attempt && reports->iteration <= t->last_step)
        UNI_TRY(write_restart(t, time, reports->iteration, err));
    t->attempt = reports->attempt;
    t->last_step = reports->iteration;
    int status = uni__flatten(metrics, '/', &t->name, take_metric, t, err);
    if (status == 0)
        status = write_summary(t, time, reports->iteration, err);
    forget_report(t);
    return status;
}

/* ---- hparams ---- */

static int write_hparams(tensorboard *t, const char *name, Uni__Tb__HParams *data, uni_error *err)
{
    size_t size = uni__tb__hparams__get_packed_size(data);
    uint8_t *content = malloc(size > 0 ? size : 1);
    if (content == NULL)
        return no_memory(err);
    uni__tb__hparams__pack(data, content);
    Uni__Tb__PluginData plugin = UNI__TB__PLUGIN_DATA__INIT;
    plugin.plugin_name = "hparams";
    plugin.content = (ProtobufCBinaryData){ size, content };
    Uni__Tb__Metadata metadata = UNI__TB__METADATA__INIT;
    metadata.plugin_data = &plugin;
    Uni__Tb__Value *value = NULL;
    int status = add_value(t, name, &value, err);
    if (status == 0) {
        value->metadata = &metadata;
        status = write_summary(t, uni__wall_seconds(), 0, err);
    }
    forget_report(t);
    free(content);
    return status;
}

typedef struct hparams {
    Uni__Tb__HParam *pairs;
    size_t count, capacity;
} hparams;

static void hparams_free(hparams *h)
{
    for (size_t i = 0; i < h->count; i++) {
        free(h->pairs[i].key);
        if (h->pairs[i].value != NULL &&
            h->pairs[i].value->kind_case == UNI__TB__ANY__KIND_STRING_VALUE)
            free(h->pairs[i].value->string_value);
        free(h->pairs[i].value);
    }
    free(h->pairs);
}

static int take_hparam(void *context, const char *name, const uni_value *leaf, uni_error *err)
{
    hparams *h = context;
    uni_value_type type = uni_value_type_of(leaf);
    if (type == UNI_TYPE_NULL)
        return 0;
    Uni__Tb__HParam *grown = uni__grown(h->pairs, h->count, &h->capacity, sizeof *grown);
    if (!grown)
        return no_memory(err);
    h->pairs = grown;
    Uni__Tb__HParam *pair = &h->pairs[h->count++];
    uni__tb__hparam__init(pair);
    pair->key = strdup(name);
    pair->value = malloc(sizeof *pair->value);
    if (pair->key == NULL || pair->value == NULL)
        return no_memory(err);
    uni__tb__any__init(pair->value);
    if (type == UNI_TYPE_BOOL) {
        pair->value->kind_case = UNI__TB__ANY__KIND_BOOL_VALUE;
        pair->value->bool_value = uni_value_as_bool(leaf, false);
    } else if (uni_value_is_number(leaf)) {
        pair->value->kind_case = UNI__TB__ANY__KIND_NUMBER_VALUE;
        pair->value->number_value = uni_value_as_float(leaf, NAN);
    } else {
        uni__text text = { 0 };
        if (type == UNI_TYPE_STRING)
            uni__text_add_string(&text, uni_value_as_string(leaf, ""));
        else
            uni__emit_json(&text, leaf, 0);
        if (text.failed || text.data == NULL)
            return no_memory(err);
        pair->value->kind_case = UNI__TB__ANY__KIND_STRING_VALUE;
        pair->value->string_value = text.data; /* owned */
    }
    return 0;
}

static int write_session_start(tensorboard *t, const uni_start_info *info, uni_error *err)
{
    hparams h = { 0 };
    Uni__Tb__HParam **pointers = NULL;
    int status = uni__flatten(info->config, '/', &t->name, take_hparam, &h, err);
    if (status == 0 && h.count > 0) {
        pointers = malloc(h.count * sizeof(Uni__Tb__HParam *));
        if (pointers == NULL)
            status = no_memory(err);
    }
    if (status == 0) {
        for (size_t i = 0; i < h.count; i++)
            pointers[i] = &h.pairs[i];
        Uni__Tb__SessionStart start = UNI__TB__SESSION_START__INIT;
        start.n_hparams = h.count;
        start.hparams = pointers;
        start.group_name = (char *)(info->run_id != NULL ? info->run_id : "");
        start.start_time_secs = info->started > 0 ? info->started : uni__wall_seconds();
        Uni__Tb__HParams data = UNI__TB__HPARAMS__INIT;
        data.data_case = UNI__TB__HPARAMS__DATA_SESSION_START_INFO;
        data.session_start_info = &start;
        status = write_hparams(t, "_hparams_/session_start_info", &data, err);
    }
    free(pointers);
    hparams_free(&h);
    return status;
}

/* ---- the sink ---- */

static int tensorboard_start(void *self, const uni_start_info *info, uni_error *err)
{
    tensorboard *t = self;
    UNI_TRY(uni__event_file_open(&t->file, t->dir != NULL ? t->dir : info->run_dir, err));
    t->started = info->started;
    if (uni_dict_size(info->config) > 0)
        UNI_TRY(write_session_start(t, info, err));
    return uni__event_file_flush(&t->file, err);
}

static void tensorboard_tick(void *self)
{
    uni_error err = { 0 };
    /* Data that could not be written waits; the next result or finish reports it. */
    (void)!uni__event_file_flush(&((tensorboard *)self)->file, &err);
}

static int tensorboard_finish(void *self, const uni_finish_info *info, uni_error *err)
{
    tensorboard *t = self;
    Uni__Tb__SessionEnd end = UNI__TB__SESSION_END__INIT;
    end.status = info->code == 0 ? UNI__TB__SESSION_END__STATUS__SUCCESS
                                 : UNI__TB__SESSION_END__STATUS__FAILURE;
    end.end_time_secs = t->started > 0 ? t->started + info->seconds : uni__wall_seconds();
    Uni__Tb__HParams data = UNI__TB__HPARAMS__INIT;
    data.data_case = UNI__TB__HPARAMS__DATA_SESSION_END_INFO;
    data.session_end_info = &end;
    UNI_TRY(write_hparams(t, "_hparams_/session_end_info", &data, err));
    return uni__event_file_flush(&t->file, err);
}

static void tensorboard_free(void *self)
{
    tensorboard *t = self;
    forget_report(t);
    uni__event_file_close(&t->file);
    for (size_t i = 0; i < t->num_tags; i++) {
        free(t->tags[i].metric);
        free(t->tags[i].tag);
    }
    uni__text_free(&t->name);
    free(t->tags);
    free(t->values);
    free(t->pointers);
    free(t->histograms);
    free(t->dir);
    free(t->prefix);
    free(t);
}

static const uni_sink_class tensorboard_class = {
    .name = "tensorboard",
    .start = tensorboard_start,
    .result = tensorboard_result,
    .tick = tensorboard_tick,
    .finish = tensorboard_finish,
    .free = tensorboard_free,
};

int uni_sink_tensorboard(uni_sink **out, const uni_sink_tensorboard_options *options,
                         uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_sink_tensorboard_options, options, rank, err);
    bool failed = false;
    tensorboard *t = calloc(1, sizeof *t);
    if (t == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the TensorBoard sink");
    t->file.fd = -1;
    t->rank = options->rank;
    t->dir = uni__sink_copy(options->dir, &failed);
    t->prefix = uni__sink_copy(options->prefix != NULL ? options->prefix : "", &failed);
    int status = failed ? uni_error_set(err, UNI_ENOMEM, "no memory for the TensorBoard sink")
                        : uni_sink_new(out, &tensorboard_class, t, err);
    if (status < 0)
        tensorboard_free(t);
    return status;
}
