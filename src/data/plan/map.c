/*
 * map.c - transforms with user functions: on tables (map_batches) and, built on that, on rows (map,
 * filter, flat_map).
 */
#include <stdlib.h>
#include <string.h>
#include "data/plan/dataset.h"
#include "data/table/table.h"
#include "base/options.h"

/* ---- tables ---- */

struct table_map {
    uni_table_function function;
    void *context;
    void (*free_context)(void *context);
};

/* A user function that fails without a message must not look like the end of the data. */
static int said_why(int status, uni_error *err)
{
    if (status < 0 && err != NULL && err->code == 0)
        return uni_error_set(err, UNI_EFUNCTION, "the function failed (%d) without a message",
                             status);
    return status < 0 ? status : 0;
}

static int map_table(void *self, uni__reader *reader, uni_table *in, uni_table **out,
                     uni_error *err)
{
    const struct table_map *map = self;
    *out = NULL;
    int status = map->function(map->context, in, out, err);
    if (status >= 0 && *out == NULL)
        return uni_error_set(err, UNI_EFUNCTION, "the function returned no table");
    return said_why(status, err);
}

static void free_table_map(void *self)
{
    struct table_map *map = self;
    if (map->free_context != NULL)
        map->free_context(map->context);
    free(map);
}

int uni_dataset_map_batches(uni_dataset **out, uni_dataset *from, const uni_map_options *options,
                            uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_map_options, options, schema, err);
    if (options->function == NULL)
        return uni_error_set(err, UNI_EINVAL, "map_batches needs a function");
    struct table_map *map = malloc(sizeof *map);
    if (map == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a transform");
    *map = (struct table_map){ .function = options->function,
                               .context = options->context,
                               .free_context = options->free_context };
    uni__stage stage = { .name = (char *)(options->name != NULL ? options->name : "map_batches"),
                         .self = map,
                         .apply = map_table,
                         .free = free_table_map,
                         .changes_rows = options->changes_rows,
                         .keeps_columns = options->keeps_columns,
                         .in_order = options->in_order,
                         .batch_size = options->batch_size };
    return uni__dataset_add_stage(out, from, &stage, options->schema, err);
}

/* ---- rows ---- */

struct row_map {
    uni_row_map map;
    uni_row_filter filter;
    uni_row_flat_map flat_map;
    void *context;
};

static int map_rows(void *self, uni__reader *reader, uni_table *in, uni_table **out, uni_error *err)
{
    const struct row_map *row_map = self;
    int64_t count = uni_table_num_rows(in);
    uni_value *rows = uni_value_list();
    int status = rows != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for rows");
    *out = NULL;
    for (int64_t row = 0; row < count && status == 0; row++) {
        status = uni__reader_is_wanted(reader, err);
        if (status < 0)
            break;
        uni_value *made = row_map->map != NULL ? uni_value_dict() : NULL;
        if (row_map->map != NULL) {
            status = made != NULL ? row_map->map(row_map->context, in, row, made, err)
                                  : uni_error_set(err, UNI_ENOMEM, "no memory for rows");
            if (status < 0)
                uni_value_free(made);
            else if (uni_list_take(rows, made) < 0)
                status = uni_error_set(err, UNI_ENOMEM, "no memory for rows");
        } else {
            status = row_map->flat_map(row_map->context, in, row, rows, err);
        }
        status = said_why(status, err);
    }
    if (status == 0)
        status = uni_table_from_rows(out, rows, NULL, err);
    uni_value_free(rows);
    return status;
}

static int filter_rows(void *self, uni__reader *reader, uni_table *in, uni_table **out,
                       uni_error *err)
{
    const struct row_map *row_map = self;
    int64_t count = uni_table_num_rows(in), kept = 0;
    *out = NULL;
    uni__row *rows =
        uni__reader_scratch(reader, UNI__SCRATCH_FILTER_ROWS, (size_t)count * sizeof *rows + 1);
    if (rows == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %lld rows", (long long)count);
    for (int64_t row = 0; row < count; row++) {
        UNI_TRY(uni__reader_is_wanted(reader, err));
        int keep = row_map->filter(row_map->context, in, row, err);
        if (keep < 0)
            return said_why(keep, err);
        if (keep > 0)
            rows[kept++] = (uni__row){ .row = (int32_t)row };
    }
    if (kept == count) {
        *out = uni_table_ref(in);
        return 0;
    }
    return uni__table_gather(out, reader, &in, 1, rows, kept, err);
}

static int add_row_stage(uni_dataset **out, uni_dataset *from, const char *name,
                         const struct row_map *functions, uni_error *err)
{
    *out = NULL;
    if (functions->map == NULL && functions->filter == NULL && functions->flat_map == NULL)
        return uni_error_set(err, UNI_EINVAL, "%s needs a function", name);
    struct row_map *copy = malloc(sizeof *copy);
    if (copy == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a transform");
    *copy = *functions;
    bool filter = functions->filter != NULL;
    uni__stage stage = { .name = (char *)name,
                         .self = copy,
                         .apply = filter ? filter_rows : map_rows,
                         .free = free,
                         .changes_rows = functions->map == NULL,
                         .keeps_columns = filter };
    return uni__dataset_add_stage(out, from, &stage, NULL, err);
}

int uni_dataset_map(uni_dataset **out, uni_dataset *from, uni_row_map function, void *context,
                    uni_error *err)
{
    return add_row_stage(out, from, "map", &(struct row_map){ .map = function, .context = context },
                         err);
}

int uni_dataset_filter(uni_dataset **out, uni_dataset *from, uni_row_filter function, void *context,
                       uni_error *err)
{
    return add_row_stage(out, from, "filter",
                         &(struct row_map){ .filter = function, .context = context }, err);
}

int uni_dataset_flat_map(uni_dataset **out, uni_dataset *from, uni_row_flat_map function,
                         void *context, uni_error *err)
{
    return add_row_stage(out, from, "flat_map",
                         &(struct row_map){ .flat_map = function, .context = context }, err);
}
