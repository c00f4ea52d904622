/*
 * tensorboard_experiment.c - the experiment summary of the hparams plugin: which parameters and
 * metrics its table has.
 *
 * TensorBoard would find both by itself, but only from the runs that it has read so far, and it
 * would show every scalar as a metric. A parameter's type is that of its values; if trials differ
 * in type, it is a string, as in TensorBoard's own guess. Thread: the caller's.
 */
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "track/sink.h"
#include "track/tensorboard_file.h"
#include "track/trials.h"

typedef struct columns {
    Uni__Tb__HParamInfo *items;
    size_t count, capacity;
} columns;

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory for the experiment's page in TensorBoard");
}

static Uni__Tb__HParamInfo__Type type_of(const uni_value *leaf)
{
    if (uni_value_type_of(leaf) == UNI_TYPE_BOOL)
        return UNI__TB__HPARAM_INFO__TYPE__BOOL;
    return uni_value_is_number(leaf) ? UNI__TB__HPARAM_INFO__TYPE__FLOAT64
                                     : UNI__TB__HPARAM_INFO__TYPE__STRING;
}

static int take_parameter(void *context, const char *name, const uni_value *leaf, uni_error *err)
{
    columns *c = context;
    if (uni_value_type_of(leaf) == UNI_TYPE_NULL)
        return 0;
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->items[i].name, name) == 0) {
            if (c->items[i].type != type_of(leaf))
                c->items[i].type = UNI__TB__HPARAM_INFO__TYPE__STRING;
            return 0;
        }
    Uni__Tb__HParamInfo *grown = uni__grown(c->items, c->count, &c->capacity, sizeof *grown);
    if (!grown)
        return no_memory(err);
    c->items = grown;
    char *copy = strdup(name);
    if (copy == NULL)
        return no_memory(err);
    uni__tb__hparam_info__init(&c->items[c->count]);
    c->items[c->count].name = copy;
    c->items[c->count++].type = type_of(leaf);
    return 0;
}

/* Writes one event with the page as the plugin's data. */
static int write_page(const char *dir, Uni__Tb__Experiment *experiment, uni_error *err)
{
    Uni__Tb__HParams data = UNI__TB__HPARAMS__INIT;
    data.data_case = UNI__TB__HPARAMS__DATA_EXPERIMENT;
    data.experiment = experiment;
    size_t size = uni__tb__hparams__get_packed_size(&data);
    uint8_t *content = malloc(size > 0 ? size : 1);
    if (content == NULL)
        return no_memory(err);
    uni__tb__hparams__pack(&data, content);
    Uni__Tb__PluginData plugin = UNI__TB__PLUGIN_DATA__INIT;
    plugin.plugin_name = "hparams";
    plugin.content = (ProtobufCBinaryData){ size, content };
    Uni__Tb__Metadata metadata = UNI__TB__METADATA__INIT;
    metadata.plugin_data = &plugin;
    Uni__Tb__Value value = UNI__TB__VALUE__INIT, *values = &value;
    value.tag = "_hparams_/experiment";
    value.metadata = &metadata;
    Uni__Tb__Summary summary = UNI__TB__SUMMARY__INIT;
    summary.n_value = 1;
    summary.value = &values;
    Uni__Tb__Event event = UNI__TB__EVENT__INIT;
    event.wall_time = experiment->time_created_secs;
    event.what_case = UNI__TB__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    uni__event_file file = { .fd = -1 };
    int status = uni__event_file_open(&file, dir, err);
    if (status == 0)
        status = uni__event_file_add(&file, &event, err);
    if (status == 0)
        status = uni__event_file_flush(&file, err);
    uni__event_file_close(&file);
    free(content);
    return status;
}

int uni__tensorboard_experiment(const char *dir, const char *name, double created,
                                const uni_value *const *configs, size_t count,
                                const uni_value *metrics, uni_error *err)
{
    columns parameters = { 0 };
    uni__text scratch = { 0 };
    size_t num_metrics = uni_list_size(metrics);
    Uni__Tb__HParamInfo **listed = NULL;
    int status = 0;
    Uni__Tb__MetricInfo *infos = calloc(num_metrics + 1, sizeof *infos);
    Uni__Tb__MetricName *names = calloc(num_metrics + 1, sizeof *names);
    Uni__Tb__MetricInfo **shown = calloc(num_metrics + 1, sizeof(Uni__Tb__MetricInfo *));
    for (size_t i = 0; i < count && status == 0; i++)
        status = uni__flatten(configs[i], '/', &scratch, take_parameter, &parameters, err);
    listed = calloc(parameters.count + 1, sizeof(Uni__Tb__HParamInfo *));
    if (status == 0 && (infos == NULL || names == NULL || shown == NULL || listed == NULL))
        status = no_memory(err);
    if (status == 0) {
        for (size_t i = 0; i < parameters.count; i++)
            listed[i] = &parameters.items[i];
        for (size_t i = 0; i < num_metrics; i++) {
            uni__tb__metric_info__init(&infos[i]);
            uni__tb__metric_name__init(&names[i]);
            names[i].tag = (char *)uni_value_as_string(uni_list_get(metrics, i), "");
            infos[i].name = &names[i];
            shown[i] = &infos[i];
        }
        Uni__Tb__Experiment experiment = UNI__TB__EXPERIMENT__INIT;
        experiment.name = (char *)name;
        experiment.time_created_secs = created;
        experiment.n_hparam_infos = parameters.count;
        experiment.hparam_infos = listed;
        experiment.n_metric_infos = num_metrics;
        experiment.metric_infos = shown;
        status = write_page(dir, &experiment, err);
    }
    for (size_t i = 0; i < parameters.count; i++)
        free(parameters.items[i].name);
    free(parameters.items);
    free(listed);
    free(infos);
    free(names);
    free(shown);
    uni__text_free(&scratch);
    return status;
}
