/*
 * columns.c - column transforms: select, drop, rename, cast, concat_columns. Applying a stage to an
 * empty table yields its schema, so a wrong name or type fails when the transform is created.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data/shared.h"
#include "data/table/cast.h"
#include "data/table/matrix.h"
#include "data/plan/dataset.h"
#include "data/table/name_index.h"
#include "data/table/table.h"

/* Column names and the arguments of the transform. */
struct naming {
    int count;
    char **names;
    uni__name_index index;
    char *new_name;
    uni_dtype dtype;
};

static void free_naming(void *self)
{
    struct naming *naming = self;
    if (naming == NULL)
        return;
    for (int i = 0; i < naming->count; i++)
        free(naming->names[i]);
    free(naming->names);
    uni__name_index_free(&naming->index);
    free(naming->new_name);
    free(naming);
}

static struct naming *new_naming(const char *const *names, const char *new_name, uni_dtype dtype)
{
    struct naming *naming = calloc(1, sizeof *naming);
    int count = 0;
    while (names != NULL && names[count] != NULL)
        count++;
    if (naming == NULL || (naming->names = calloc((size_t)count + 1, sizeof(char *))) == NULL)
        goto fail;
    naming->dtype = dtype;
    while (naming->count < count) {
        naming->names[naming->count] = strdup(names[naming->count]);
        if (naming->names[naming->count++] == NULL ||
            uni__name_index_grow(&naming->index, (const char *const *)naming->names, sizeof(char *),
                                 (size_t)naming->count) < 0)
            goto fail;
    }
    if (new_name != NULL && (naming->new_name = strdup(new_name)) == NULL)
        goto fail;
    return naming;
fail:
    free_naming(naming);
    return NULL;
}

static bool is_named(const struct naming *naming, const char *name)
{
    return uni__name_index_find(&naming->index, (const char *const *)naming->names, sizeof(char *),
                                (size_t)naming->count, name) >= 0;
}

static int check_names(const struct naming *naming, const uni_table *table, uni_error *err)
{
    for (int i = 0; i < naming->count; i++) {
        if (uni_table_find(table, naming->names[i]) == NULL)
            return uni__no_such_column(table, naming->names[i], err);
    }
    return 0;
}

/* ---- the stages ---- */

static int apply_select(void *self, uni__reader *reader, uni_table *in, uni_table **out,
                        uni_error *err)
{
    const struct naming *naming = self;
    return uni__table_select(out, in, (const char *const *)naming->names, naming->count, err);
}

/* Passes every column through `change` into a new table. */
typedef int (*column_change)(const struct naming *naming, uni__reader *reader,
                             const uni_table_column *column, uni_table *out, uni_error *err);

static int change_columns(const struct naming *naming, uni__reader *reader, uni_table *in,
                          column_change change, uni_table **out, uni_error *err)
{
    uni_table *made = NULL;
    *out = NULL;
    UNI_TRY(check_names(naming, in, err));
    UNI_TRY(uni_table_new(&made, uni_table_num_rows(in), err));
    for (int i = 0; i < uni_table_num_columns(in); i++) {
        int status = change(naming, reader, uni_table_column_at(in, i), made, err);
        if (status < 0) {
            uni_table_unref(made);
            return status;
        }
    }
    *out = made;
    return 0;
}

static int drop_column(const struct naming *naming, uni__reader *reader,
                       const uni_table_column *column, uni_table *out, uni_error *err)
{
    return is_named(naming, column->field.name) ? 0 : uni_table_add(out, column, err);
}

static int rename_column(const struct naming *naming, uni__reader *reader,
                         const uni_table_column *column, uni_table *out, uni_error *err)
{
    uni_table_column renamed = *column;
    if (is_named(naming, column->field.name))
        renamed.field.name = naming->new_name;
    return uni_table_add(out, &renamed, err);
}

static int cast_column(const struct naming *naming, uni__reader *reader,
                       const uni_table_column *column, uni_table *out, uni_error *err)
{
    bool number = column->field.kind == UNI_FIELD_NUMBER;
    bool wanted = naming->count == 0 ? number : is_named(naming, column->field.name);
    if (!wanted || (number && column->field.dtype == naming->dtype))
        return uni_table_add(out, column, err);
    if (!number)
        return uni_error_set(err, UNI_EDTYPE, "column %s holds no numbers that could become %s",
                             column->field.name, uni_dtype_name(naming->dtype));
    uni_table_column made = { .field = column->field };
    made.field.dtype = naming->dtype;
    UNI_TRY(uni__reader_array(reader, &made.values, naming->dtype, uni_array_ndim(column->values),
                              uni_array_shape(column->values), err));
    bool real = naming->dtype == UNI_F32 || naming->dtype == UNI_F64;
    int status =
        uni__cast(uni_array_data(made.values), naming->dtype, uni_array_data(column->values),
                  column->field.dtype, uni_array_count(column->values), err);
    if (status < 0)
        uni_error_prefix(err, "column %s", column->field.name);
    else if (real) { /* floats represent a missing number as NaN */
        size_t width = uni__matrix_width(&column->field);
        status = uni__matrix_gaps(column, naming->dtype, uni_array_data(made.values), 0, width,
                                  uni_table_num_rows(out), err);
    } else
        made.valid = column->valid;
    if (status == 0)
        status = uni_table_add(out, &made, err);
    uni_array_unref(made.values);
    return status;
}

static int apply_drop(void *self, uni__reader *reader, uni_table *in, uni_table **out,
                      uni_error *err)
{
    return change_columns(self, reader, in, drop_column, out, err);
}

static int apply_rename(void *self, uni__reader *reader, uni_table *in, uni_table **out,
                        uni_error *err)
{
    return change_columns(self, reader, in, rename_column, out, err);
}

static int apply_cast(void *self, uni__reader *reader, uni_table *in, uni_table **out,
                      uni_error *err)
{
    return change_columns(self, reader, in, cast_column, out, err);
}

/* ---- concat ---- */

static int make_wide(const struct naming *naming, uni__reader *reader, uni_table *in,
                     uni_array **out, uni_error *err)
{
    const char *const *names = (const char *const *)naming->names;
    size_t width = 0;
    UNI_TRY(uni__matrix_width_of(in, names, naming->count, &width, err));
    UNI_TRY(uni__reader_array(reader, out, naming->dtype, 2,
                              (const int64_t[]){ uni_table_num_rows(in), (int64_t)width }, err));
    return uni__matrix_fill(in, names, naming->count, *out, err);
}

static int apply_concat(void *self, uni__reader *reader, uni_table *in, uni_table **out,
                        uni_error *err)
{
    const struct naming *naming = self;
    uni_table *made = NULL;
    uni_array *wide = NULL;
    bool placed = false;
    int status = 0;
    *out = NULL;
    UNI_TRY(check_names(naming, in, err));
    UNI_TRY_GOTO(make_wide(naming, reader, in, &wide, err), done);
    UNI_TRY_GOTO(uni_table_new(&made, uni_table_num_rows(in), err), done);
    for (int i = 0; i < uni_table_num_columns(in); i++) {
        const uni_table_column *column = uni_table_column_at(in, i);
        if (!is_named(naming, column->field.name)) {
            UNI_TRY_GOTO(uni_table_add(made, column, err), done);
        } else if (!placed) {
            UNI_TRY_GOTO(uni_table_add_array(made, naming->new_name, wide, err), done);
            placed = true;
        }
    }
    *out = made;
    made = NULL;
done:
    uni_table_unref(made);
    uni_array_unref(wide);
    return status;
}

/* ---- constructors ---- */

typedef int (*stage_function)(void *self, uni__reader *reader, uni_table *in, uni_table **out,
                              uni_error *err);

/* Takes ownership of `naming`. Applying the stage to an empty table gives the schema and checks the
 * arguments. */
static int add_column_stage(uni_dataset **out, uni_dataset *from, const char *name,
                            struct naming *naming, stage_function apply, uni_error *err)
{
    *out = NULL;
    if (naming == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a transform");
    const uni_table *before = NULL;
    uni_table *empty = NULL, *after = NULL;
    uni__reader *reader = NULL;
    uni__stage stage = {
        .name = (char *)name, .self = naming, .apply = apply, .free = free_naming, .quick = true
    };
    int status = from != NULL ? uni_dataset_schema(&before, from, err)
                              : uni_error_set(err, UNI_EINVAL, "%s needs a dataset", name);
    if (status == 0)
        status = uni__table_empty(&empty, before, err);
    if (status == 0)
        status = uni__reader_new(&reader, false, err);
    if (status == 0 && (status = apply(naming, reader, empty, &after, err)) < 0)
        uni_error_prefix(err, "%s", name);
    if (status == 0)
        status = uni__dataset_add_stage(out, from, &stage, after, err);
    else
        free_naming(naming);
    uni_table_unref(after);
    uni_table_unref(empty);
    uni__reader_free(reader);
    return status;
}

int uni_dataset_select(uni_dataset **out, uni_dataset *from, const char *const *names,
                       uni_error *err)
{
    return add_column_stage(out, from, "select", new_naming(names, NULL, 0), apply_select, err);
}

int uni_dataset_drop(uni_dataset **out, uni_dataset *from, const char *const *names, uni_error *err)
{
    return add_column_stage(out, from, "drop", new_naming(names, NULL, 0), apply_drop, err);
}

int uni_dataset_rename(uni_dataset **out, uni_dataset *from, const char *name, const char *new_name,
                       uni_error *err)
{
    const char *const names[] = { name, NULL };
    return add_column_stage(out, from, "rename", new_naming(names, new_name, 0), apply_rename, err);
}

int uni_dataset_cast(uni_dataset **out, uni_dataset *from, const char *column, uni_dtype dtype,
                     uni_error *err)
{
    const char *const names[] = { column, NULL };
    *out = NULL;
    if (uni_dtype_size(dtype) == 0)
        return uni_error_set(err, UNI_EDTYPE, "cast: %d is not an element type", (int)dtype);
    return add_column_stage(out, from, "cast", new_naming(names, NULL, dtype), apply_cast, err);
}

int uni_dataset_concat_columns(uni_dataset **out, uni_dataset *from, const char *const *names,
                               const char *new_name, uni_dtype dtype, uni_error *err)
{
    *out = NULL;
    if (names == NULL || names[0] == NULL || new_name == NULL || uni_dtype_size(dtype) == 0)
        return uni_error_set(err, UNI_EINVAL, "concat_columns needs columns, a name and a dtype");
    return add_column_stage(out, from, "concat_columns", new_naming(names, new_name, dtype),
                            apply_concat, err);
}
