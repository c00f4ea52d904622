/*
 * open.c - saving and loading models: by the file's ending .keras (all of it), .weights.h5 or
 * .safetensors (weights).
 *
 * Keras's formats go through a child process with libunisono-keras.so (child.c); safetensors is
 * read and written here. Files are written beside and renamed, so that a reader never sees half of
 * one. The model's thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/shared.h"
#include "nn/shared.h"
#include "tensor/shared.h"
#include "base/file.h"
#include "base/json.h"
#include "nn/files/files.h"
#include "nn/optimizer/optimizer.h"
#include "nn/files/safetensors.h"

enum format { FORMAT_KERAS, FORMAT_WEIGHTS, FORMAT_SAFETENSORS };

static bool ends_with(const char *path, const char *ending)
{
    size_t length = strlen(path), size = strlen(ending);
    return length > size && strcasecmp(path + length - size, ending) == 0;
}

static int find_format(const char *path, enum format *out, uni_error *err)
{
    static const char *const endings[] = { ".keras", ".weights.h5",
                                           ".safetensors" }; /* by enum format */
    for (int i = 0; i < 3; i++)
        if (ends_with(path, endings[i])) {
            *out = (enum format)i;
            return 0;
        }
    return uni_error_set(
        err, UNI_EINVAL,
        "\"%s\" must end in .keras (the whole model), .weights.h5 or .safetensors (weights)%s",
        path, ends_with(path, ".h5") ? "; the old whole-model .h5 format is not supported" : "");
}

static int need_built(const uni_model *model, const char *path, uni_error *err)
{
    return uni__model_is_built(model)
               ? 0
               : uni_error_set(err, UNI_ESTATE,
                               "\"%s\": model %s has no weights yet; build it first "
                               "(uni_model_build, or run data through it)",
                               path, uni__model_name(model));
}

/* ---- saving ---- */

/* What a child needs to write: the plan as the plug-in sees it. */
struct writing {
    const uni__keras_plugin *plugin;
    uni__file_plan plan;
    uni__h5_group *groups;
    uni__h5_variable *variables;
    int64_t *integers; /* values of int64 variables */
    float rate;
    char *config, *metadata; /* .keras only */
    size_t config_size, metadata_size;
};

static void free_writing(struct writing *writing)
{
    uni__file_plan_free(&writing->plan);
    free(writing->groups);
    free(writing->variables);
    free(writing->integers);
    free(writing->config);
    free(writing->metadata);
}

static uni__h5_variable written_variable(struct writing *writing, size_t i,
                                         const uni_optimizer *optimizer)
{
    const uni__variable *from = &writing->plan.variables[i];
    uni__h5_variable to = { .path = from->path,
                            .dtype = UNI_F32,
                            .ndim = from->ndim,
                            .shape = from->shape,
                            .data = from->data };
    if (from->kind == UNI__VARIABLE_RATE) {
        writing->rate = (float)uni_optimizer_learning_rate(optimizer, NULL);
        to.data = &writing->rate;
    } else if (from->kind == UNI__VARIABLE_ITERATION || from->kind == UNI__VARIABLE_COUNT) {
        writing->integers[i] = from->kind == UNI__VARIABLE_COUNT
                                   ? (int64_t)*from->data
                                   : uni__optimizer_batches(optimizer);
        to.dtype = UNI_I64;
        to.data = &writing->integers[i];
    }
    return to;
}

static int prepare_writing(struct writing *writing, const uni_model *model, uni_error *err)
{
    UNI_TRY(uni__keras_plugin_load(&writing->plugin, err));
    UNI_TRY(uni__file_plan_make(&writing->plan, model, true, err));
    writing->groups = calloc(writing->plan.num_groups + 1, sizeof *writing->groups);
    writing->variables = calloc(writing->plan.num_variables + 1, sizeof *writing->variables);
    writing->integers = calloc(writing->plan.num_variables + 1, sizeof *writing->integers);
    if (writing->groups == NULL || writing->variables == NULL || writing->integers == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to save model %s", uni__model_name(model));
    for (size_t i = 0; i < writing->plan.num_groups; i++)
        writing->groups[i] = writing->plan.groups[i].group;
    for (size_t i = 0; i < writing->plan.num_variables; i++)
        writing->variables[i] = written_variable(writing, i, uni_model_optimizer(model));
    return 0;
}

static int prepare_config(struct writing *writing, const uni_model *model, uni_error *err)
{
    uni_value *config = NULL;
    UNI_TRY(uni__model_get_config(&config, model, err));
    int status = uni_json_write(&writing->config, &writing->config_size, config, 0, err);
    uni_value_free(config);
    if (status < 0)
        return status;
    time_t now = time(NULL);
    struct tm parts;
    char date[64] = "";
    if (gmtime_r(&now, &parts) != NULL)
        strftime(date, sizeof date, "%Y-%m-%d@%H:%M:%S", &parts);
    /* The Keras whose format this is; its readers look at nothing else here. */
    int size = asprintf(&writing->metadata,
                        "{\"keras_version\": \"3.15.1\", \"date_saved\": \"%s\"}", date);
    if (size < 0) {
        writing->metadata = NULL;
        return uni_error_set(err, UNI_ENOMEM, "no memory to save model %s", uni__model_name(model));
    }
    writing->metadata_size = (size_t)size;
    return 0;
}

static int write_in_child(void *context, int fd, uni_error *err)
{
    const struct writing *writing = context;
    uni__h5_contents contents = { writing->plan.num_groups, writing->plan.num_variables,
                                  writing->groups, writing->variables };
    if (writing->config == NULL)
        return writing->plugin->write_weights(fd, &contents, err);
    uni__zip_member members[] = { { "metadata.json", writing->metadata, writing->metadata_size },
                                  { "config.json", writing->config, writing->config_size } };
    return writing->plugin->write_archive(fd, 2, members, &contents, err);
}

static int save_keras(const uni_model *model, const char *path, bool archive, uni_error *err)
{
    struct writing writing = { 0 };
    uni__text bytes = { 0 };
    int status = prepare_writing(&writing, model, err);
    if (status == 0 && archive)
        status = prepare_config(&writing, model, err);
    size_t size = (size_t)1 << 20;
    for (size_t i = 0; status == 0 && i < writing.plan.num_variables; i++)
        size += writing.plan.variables[i].count * sizeof(float) + 4096;
    if (status == 0)
        status = uni__child_run(write_in_child, &writing, path, 8 * size + ((size_t)512 << 20),
                                4 * size + writing.config_size, &bytes, err);
    if (status == 0)
        status = uni__write_file(path, bytes.data, bytes.size, true, err);
    uni__text_free(&bytes);
    free_writing(&writing);
    return status;
}

static int save_safetensors(const uni_model *model, const char *path, uni_error *err)
{
    uni__file_plan plan = { 0 };
    UNI_TRY(uni__file_plan_make(&plan, model, false, err));
    uni__safetensors_entry *entries = calloc(plan.num_variables + 1, sizeof *entries);
    const void **data = calloc(plan.num_variables + 1, sizeof *data);
    uni_value *metadata = uni_value_dict();
    int status = entries == NULL || data == NULL
                     ? UNI_ENOMEM
                     : uni_dict_take(metadata, "format", uni_value_string("unisono"));
    if (status < 0)
        uni_error_set(err, status, "no memory to save model %s", uni__model_name(model));
    size_t count = 0;
    for (size_t i = 0; status == 0 && i < plan.num_variables; i++) {
        const uni__variable *variable = &plan.variables[i];
        if (variable->parameter == NULL)
            continue;
        entries[count] = (uni__safetensors_entry){ .name = variable->what,
                                                   .dtype = UNI_F32,
                                                   .ndim = variable->ndim };
        memcpy(entries[count].shape, variable->shape, sizeof entries[count].shape);
        data[count++] = variable->data;
    }
    if (status == 0)
        status = uni__safetensors_write(path, count, entries, data, metadata, err);
    uni_value_free(metadata);
    free(entries);
    free(data);
    uni__file_plan_free(&plan);
    return status;
}

int uni_model_save(const uni_model *model, const char *path, uni_error *err)
{
    enum format format;
    UNI_TRY(find_format(path, &format, err));
    UNI_TRY(need_built(model, path, err));
    return format == FORMAT_SAFETENSORS ? save_safetensors(model, path, err)
                                        : save_keras(model, path, format == FORMAT_KERAS, err);
}

/* ---- loading ---- */

/* A text with a NUL in it would end there for us, and be another name than the file says. Words of
 * vocabularies may have one. */
static bool has_nul(const uni_value *value)
{
    size_t size = 0;
    if (uni_value_type_of(value) == UNI_TYPE_STRING)
        return strlen(uni_value_as_bytes(value, &size)) != size;
    for (size_t i = 0; i < uni_list_size(value); i++)
        if (has_nul(uni_list_get(value, i)))
            return true;
    for (size_t i = 0; i < uni_dict_size(value); i++)
        if (strcmp(uni_dict_key_at(value, i), "vocabulary") != 0 &&
            has_nul(uni_dict_value_at(value, i)))
            return true;
    return false;
}

/* How many numbers the file has, with room for the gaps between parameters. */
static size_t count_numbers(const uni__contents *contents)
{
    size_t count = 1024;
    for (size_t i = 0; i < contents->count; i++)
        count += contents->items[i].kind == UNI__ITEM_VARIABLE
                     ? contents->items[i].size / sizeof(float) + 64
                     : 0;
    return count;
}

static int read_config(uni_model **out, const uni__contents *contents, uni_error *err)
{
    const uni__item *item = uni__contents_find(contents, UNI__ITEM_MEMBER, "config.json");
    uni_value *config = NULL;
    if (item == NULL)
        return uni_error_set(err, UNI_EFORMAT, "config.json is missing");
    int status = uni__json_read_limited(&config, item->data, item->size, UNI__JSON_FEW, err);
    if (status == 0 && uni_value_type_of(config) != UNI_TYPE_DICT)
        status = uni_error_set(err, UNI_EFORMAT, "it is not a dictionary but a %s",
                               uni__value_type_name(uni_value_type_of(config)));
    if (status == 0 && has_nul(config))
        status = uni_error_set(err, UNI_EFORMAT, "a name in it has a NUL");
    if (status == 0)
        status = uni__model_from_config(out, config, count_numbers(contents), err);
    if (status < 0)
        uni_error_prefix(err, "config.json");
    uni_value_free(config);
    return status;
}

int uni_model_load(uni_model **out, const char *path, uni_error *err)
{
    enum format format;
    uni_model *model = NULL;
    uni__contents contents = { 0 };
    *out = NULL;
    UNI_TRY(find_format(path, &format, err));
    if (format != FORMAT_KERAS)
        return uni_error_set(
            err, UNI_EINVAL,
            "\"%s\" has weights only; make the model and use uni_model_load_weights", path);
    UNI_TRY(uni__contents_read(&contents, path, true, err));
    int status = read_config(&model, &contents, err);
    if (status < 0)
        uni_error_prefix(err, "the Keras file \"%s\"", path);
    if (status == 0)
        status = need_built(model, path, err);
    if (status == 0)
        status = uni__fill_assets(model, &contents, err);
    if (status == 0)
        status = uni__fill_model(model, &contents, path, true, err);
    uni__contents_free(&contents);
    if (status < 0) {
        uni_model_free(model);
        return status;
    }
    *out = model;
    return 0;
}

static int check_entry(const uni__variable *variable, const uni__safetensors_entry *entry,
                       const char *path, uni_error *err)
{
    char in_file[UNI__SHAPE_TEXT_SIZE], in_model[UNI__SHAPE_TEXT_SIZE];
    if (entry == NULL)
        return uni_error_set(
            err, UNI_EFORMAT,
            "the safetensors file \"%s\" does not fit the model: %s of layer %s is missing in it",
            path, variable->what, uni_layer_name(variable->layer));
    bool same = entry->ndim == variable->ndim;
    for (int i = 0; same && i < entry->ndim; i++)
        same = entry->shape[i] == variable->shape[i];
    if (!same)
        return uni_error_set(err, UNI_ESHAPE,
                             "the safetensors file \"%s\" does not fit the model: %s of layer %s "
                             "has the shape %s in the file and %s in the model",
                             path, variable->what, uni_layer_name(variable->layer),
                             entry->ndim <= UNI_TENSOR_MAX_DIMS
                                 ? uni__shape_text(in_file, entry->ndim, entry->shape)
                                 : "of more dimensions",
                             uni__shape_text(in_model, variable->ndim, variable->shape));
    if (entry->dtype != UNI_F32)
        return uni_error_set(err, UNI_EDTYPE,
                             "the safetensors file \"%s\": %s of layer %s has the dtype %s in the "
                             "file, float32 in the model",
                             path, variable->what, uni_layer_name(variable->layer),
                             uni_dtype_name(entry->dtype));
    return 0;
}

static int fill_safetensors(const uni__file_plan *plan, const uni__safetensors *file,
                            const char *path, uni_error *err)
{
    size_t wanted = 0;
    for (size_t i = 0; i < plan->num_variables; i++) {
        if (plan->variables[i].parameter == NULL)
            continue;
        UNI_TRY(check_entry(&plan->variables[i],
                            uni__safetensors_find(file, plan->variables[i].what), path, err));
        wanted++;
    }
    if (uni__safetensors_count(file) != wanted)
        return uni_error_set(
            err, UNI_EFORMAT,
            "the safetensors file \"%s\" is of another model: it has %zu arrays, this one has %zu",
            path, uni__safetensors_count(file), wanted);
    for (size_t i = 0; i < plan->num_variables; i++)
        if (plan->variables[i].parameter != NULL)
            UNI_TRY(uni__safetensors_read(file,
                                          uni__safetensors_find(file, plan->variables[i].what),
                                          plan->variables[i].data, err));
    return 0;
}

static int load_safetensors(uni_model *model, const char *path, uni_error *err)
{
    uni__safetensors *file = NULL;
    uni__file_plan plan = { 0 };
    UNI_TRY(uni__safetensors_open(&file, path, err));
    int status = uni__file_plan_make(&plan, model, false, err);
    if (status == 0)
        status = fill_safetensors(&plan, file, path, err);
    uni__file_plan_free(&plan);
    uni__safetensors_close(file);
    return status;
}

int uni_model_load_weights(uni_model *model, const char *path, uni_error *err)
{
    enum format format;
    UNI_TRY(find_format(path, &format, err));
    UNI_TRY(need_built(model, path, err));
    if (format == FORMAT_SAFETENSORS)
        return load_safetensors(model, path, err);
    uni__contents contents = { 0 };
    UNI_TRY(uni__contents_read(&contents, path, format == FORMAT_KERAS, err));
    int status = uni__fill_model(model, &contents, path, false, err);
    uni__contents_free(&contents);
    return status;
}
