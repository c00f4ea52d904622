/*
 * agree.c - what all ranks must have in common before they train together: the model, its
 * optimizer, and the number of batches and epochs.
 *
 * A difference found here is reported with its numbers and a remedy. Later it would be a mismatched
 * collective, or worse, weights that belong to no rank's program. Costs one small all_gather per
 * call of place, fit and pass. Called on the caller's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/text.h"
#include "strategy/internal.h"

#define MAX_ROWS 8

static int differ(const uni__common *row, int rank, int64_t theirs, int first, int64_t expected,
                  uni_error *err)
{
    if (row->is_hash)
        return uni_error_set(err, UNI_EMISMATCH, "rank %d has %s than rank %d: %s", rank, row->what,
                             first, row->advice);
    return uni_error_set(err, UNI_EMISMATCH, "rank %d has %lld %s, rank %d has %lld: %s", rank,
                         (long long)theirs, row->what, first, (long long)expected, row->advice);
}

/* Compares with the first rank that knows the number. */
static int compare(const uni_strategy *strategy, const uni__common *rows, size_t count,
                   const int64_t *all, uni_error *err)
{
    for (size_t i = 0; i < count; i++) {
        int first = -1;
        for (int rank = 0; rank < strategy->size; rank++) {
            int64_t theirs = all[(size_t)rank * count + i];
            if (theirs == UNI__NOT_KNOWN)
                continue;
            if (first < 0)
                first = rank;
            int64_t expected = all[(size_t)first * count + i];
            if (theirs != expected)
                return differ(&rows[i], rank, theirs, first, expected, err);
        }
    }
    return 0;
}

int uni__agree(uni_strategy *strategy, const uni__common *rows, size_t count, uni_error *err)
{
    int64_t mine[MAX_ROWS];
    if (!strategy->comm || strategy->size == 1)
        return 0;
    for (size_t i = 0; i < count; i++)
        mine[i] = rows[i].value;
    int64_t *all = calloc((size_t)strategy->size * count, sizeof *all);
    if (!all)
        return uni_error_set(err, UNI_ENOMEM, "no memory to compare %d ranks", strategy->size);
    int status = uni_comm_all_gather(strategy->comm, mine, all, count, UNI_I64, err);
    if (status == 0)
        status = compare(strategy, rows, count, all, err);
    free(all);
    return status;
}

/* ---- models ---- */

static int64_t hash_of(const void *data, size_t size)
{
    char hex[17];
    uni__hash_bytes(data, size, hex);
    return (int64_t)(strtoull(hex, NULL, 16) >> 1); /* never UNI__NOT_KNOWN */
}

/* Hashes the parameters in order: where each begins, its size and kind. */
static int hash_layout(const uni_parameters *store, int64_t *out, uni_error *err)
{
    size_t count = uni_parameters_count(store);
    uint64_t *layout = calloc(3 * count + 1, sizeof *layout);
    if (!layout)
        return uni_error_set(err, UNI_ENOMEM, "no memory to compare models");
    for (size_t i = 0; i < count; i++) {
        const uni_parameter *parameter = uni_parameters_at(store, i);
        layout[3 * i] = uni_parameter_info_of(parameter)->offset;
        layout[3 * i + 1] = uni_parameter_info_of(parameter)->size;
        layout[3 * i + 2] = (uint64_t)uni_parameter_info_of(parameter)->kind;
    }
    *out = hash_of(layout, 3 * count * sizeof *layout);
    free(layout);
    return 0;
}

static int hash_optimizer(const uni_optimizer *optimizer, int64_t *out, uni_error *err)
{
    uni_value *config = NULL;
    char *text = NULL;
    *out = 0;
    if (!optimizer)
        return 0;
    UNI_TRY(uni__optimizer_get_config(optimizer, &config, err));
    int status = uni_json_write(&text, NULL, config, UNI_JSON_NONFINITE, err);
    uni_value_free(config);
    UNI_TRY(status);
    *out = hash_of(text, strlen(text)) ^
           hash_of(uni__optimizer_name(optimizer), strlen(uni__optimizer_name(optimizer)));
    free(text);
    return 0;
}

/* Counts weights or states, without the gaps of the flat buffer. */
static int64_t count_numbers(const uni_parameters *store, bool states)
{
    int64_t count = 0;
    for (size_t i = 0; i < uni_parameters_count(store); i++) {
        const uni_parameter *parameter = uni_parameters_at(store, i);
        if ((uni_parameter_info_of(parameter)->kind == UNI_PARAMETER_STATE) == states)
            count += (int64_t)uni_parameter_info_of(parameter)->size;
    }
    return count;
}

/* Layers without a name are numbered per process, so ranks that have built other models before use
 * different names. Every name is replaced by its index among the names of the model. */
typedef struct names {
    const char **list;
    size_t count, room;
    bool failed;
} names;

static void collect_names(const uni_value *value, names *all)
{
    for (size_t i = 0; i < uni_list_size(value); i++)
        collect_names(uni_list_get(value, i), all);
    for (size_t i = 0; i < uni_dict_size(value); i++) {
        const uni_value *item = uni_dict_value_at(value, i);
        const char *text = uni_value_as_string(item, NULL);
        collect_names(item, all);
        if (!text || strcmp(uni_dict_key_at(value, i), "name") != 0)
            continue;
        const char **grown = uni__grown(all->list, all->count, &all->room, sizeof *grown);
        all->failed |= !grown;
        if (!grown)
            return;
        all->list = grown;
        all->list[all->count++] = text;
    }
}

static void write_unnamed(const uni_value *value, const names *all, uni__text *out)
{
    const char *text = uni_value_as_string(value, NULL);
    size_t entries = uni_dict_size(value) + uni_list_size(value);
    for (size_t i = 0; text && i < all->count; i++)
        if (strcmp(all->list[i], text) == 0) {
            uni__text_add_format(out, "#%zu,", i);
            return;
        }
    if (entries == 0) {
        char *json = NULL;
        if (uni_json_write(&json, NULL, value, UNI_JSON_NONFINITE, NULL) == 0)
            uni__text_add_format(out, "%s,", json);
        free(json);
        return;
    }
    uni__text_add_format(out, "(%zu ", entries);
    for (size_t i = 0; i < uni_list_size(value); i++)
        write_unnamed(uni_list_get(value, i), all, out);
    for (size_t i = 0; i < uni_dict_size(value); i++) {
        uni__text_add_format(out, "%s:", uni_dict_key_at(value, i));
        write_unnamed(uni_dict_value_at(value, i), all, out);
    }
    uni__text_add_string(out, ")");
}

/* Hashes layers, activations, connections, loss and metrics. UNI__NOT_KNOWN for a model with custom
 * layers that cannot be described. */
static int64_t hash_graph(const uni_model *model)
{
    uni_value *config = NULL;
    names all = { 0 };
    uni__text text = { 0 };
    int64_t hash = UNI__NOT_KNOWN;
    if (uni__model_get_config(&config, model, NULL) < 0)
        return hash;
    collect_names(config, &all);
    write_unnamed(config, &all, &text);
    if (!all.failed && !text.failed && text.data)
        hash = hash_of(text.data, text.size);
    uni__text_free(&text);
    free(all.list);
    uni_value_free(config);
    return hash;
}

int uni__agree_on_model(uni_strategy *strategy, const uni_model *model, uni_error *err)
{
    static const char same[] = "build and compile the same model on every rank";
    const uni_parameters *store = uni_model_parameters(model);
    const uni_optimizer *optimizer = uni_model_optimizer(model);
    int64_t layout = 0, settings = 0;
    UNI_TRY(hash_layout(store, &layout, err));
    UNI_TRY(hash_optimizer(optimizer, &settings, err));
    const uni__common rows[] = {
        { "weights in its model", count_numbers(store, false), same, false },
        { "moving averages in its model", count_numbers(store, true), same, false },
        { "other shapes of weights", layout, same, true },
        { "a compiled model (1) or not (0)", optimizer != NULL, same, false },
        { "another optimizer, or other settings of it,", settings, same, true },
        { "other layers, activations or connections in its model, or another loss,",
          hash_graph(model),
          "every rank must run the same program: is it the same file on all hosts?", true },
    };
    return uni__agree(strategy, rows, sizeof rows / sizeof rows[0], err);
}

/* ---- data ---- */

#define HASH_WHOLE (16u << 20) /* bytes; larger data is sampled */
#define HASH_BLOCKS 256u
#define HASH_BLOCK (64u << 10)

static uint64_t mix(uint64_t hash, uint64_t value)
{
    const uint64_t both[2] = { hash, value };
    return (uint64_t)hash_of(both, sizeof both);
}

static uint64_t hash_numbers(const uint8_t *data, size_t size, uint64_t hash)
{
    if (size <= HASH_WHOLE)
        return mix(hash, (uint64_t)hash_of(data, size));
    for (size_t i = 0; i < HASH_BLOCKS; i++) {
        size_t at = (size - HASH_BLOCK) / (HASH_BLOCKS - 1) * i;
        hash = mix(hash, (uint64_t)hash_of(data + at, HASH_BLOCK));
    }
    return hash;
}

static uint64_t hash_strings(const uni_string *strings, int64_t count, uint64_t hash)
{
    int64_t step = count / (1 << 18) + 1;
    for (int64_t i = 0; i < count; i += step)
        hash = mix(hash, (uint64_t)hash_of(strings[i].data, strings[i].size));
    return hash;
}

int64_t uni__hash_columns(int count, const uni_column *columns)
{
    uint64_t hash = (uint64_t)count;
    if (!columns || count == 0)
        return UNI__NOT_KNOWN;
    for (int c = 0; c < count; c++) {
        const uni_column *column = &columns[c];
        size_t size = uni_column_sample_bytes(column);
        hash = mix(hash, (uint64_t)column->dtype << 8 | (uint64_t)column->ndim);
        for (int d = 0; d < column->ndim; d++)
            hash = mix(hash, (uint64_t)column->shape[d]);
        if (column->dtype == UNI_STRING)
            hash = hash_strings(column->data, column->ndim > 0 ? column->shape[0] : 0, hash);
        else if (size > 0 && column->data)
            hash = hash_numbers(column->data, size * (size_t)column->shape[0], hash);
    }
    return (int64_t)(hash >> 1); /* never UNI__NOT_KNOWN */
}
