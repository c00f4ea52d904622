/*
 * columns.c - transforms of columns: select, drop, rename, cast, concat_columns. Each is a stage whose apply also makes the schema (of a table of no
 * rows), so that a wrong name or type is an error when the transform is made.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data/cast.h"
#include "data/dataset.h"
#include "data/name_index.h"
#include "data/table.h"

/* Names of columns, and what is done with them. */
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
    return uni_table_select(out, in, (const char *const *)naming->names, naming->count, err);
}

/* Every column through `change`, into a new table. */
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
    if (status == 0 && column->valid != NULL && real) {
        /* A missing number becomes NaN, which is how floats say it. */
        const uint8_t *valid = uni_array_data(column->valid);
        size_t width = uni_array_count(column->values) / (size_t)uni_table_num_rows(out);
        for (size_t i = 0; i < uni_array_count(column->values); i++) {
            if (valid[i / width])
                continue;
            if (naming->dtype == UNI_F32)
                ((float *)uni_array_data(made.values))[i] = NAN;
            else
                ((double *)uni_array_data(made.values))[i] = NAN;
        }
    } else if (column->valid != NULL) {
        made.valid = column->valid;
    }
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

static size_t width_of(const uni_field *field)
{
    return uni__field_row_bytes(field) / uni_dtype_size(field->dtype);
}

/* One column into its stripe of the wide one; in pieces of rows, so that both stay in the cache. */
static int put_stripe(const uni_table_column *column, uni__reader *reader, char *to,
                      uni_dtype dtype, size_t offset, size_t total, int64_t rows, uni_error *err)
{
    enum { PIECE = 1024 };
    size_t width = width_of(&column->field), size = uni_dtype_size(dtype);
    char *cast = uni__reader_scratch(reader, 3, PIECE * width * size + 1);
    if (cast == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to put columns together");
    const char *from = uni_array_data(column->values);
    for (int64_t first = 0; first < rows; first += PIECE) {
        size_t count = rows - first < PIECE ? (size_t)(rows - first) : PIECE;
        UNI_TRY(uni__cast(cast, dtype, from + (size_t)first * uni__field_row_bytes(&column->field),
                          column->field.dtype, count * width, err));
        char *row = to + ((size_t)first * total + offset) * size;
        if (width == 1 && size == 4) {
            for (size_t i = 0; i < count; i++)
                memcpy(row + i * total * 4, cast + i * 4, 4);
        } else if (width == 1 && size == 8) {
            for (size_t i = 0; i < count; i++)
                memcpy(row + i * total * 8, cast + i * 8, 8);
        } else {
            for (size_t i = 0; i < count; i++)
                memcpy(row + i * total * size, cast + i * width * size, width * size);
        }
    }
    return 0;
}

/* Missing values are NaN in the wide column, which has no other way to say it. */
static int put_gaps(const uni_table_column *column, char *to, uni_dtype dtype, size_t offset,
                    size_t total, int64_t rows, uni_error *err)
{
    const uint8_t *valid = column->valid != NULL ? uni_array_data(column->valid) : NULL;
    size_t width = width_of(&column->field);
    for (int64_t row = 0; valid != NULL && row < rows; row++) {
        size_t first = (size_t)row * total + offset;
        if (!valid[row] && dtype != UNI_F32 && dtype != UNI_F64)
            return uni_error_set(
                err, UNI_EDTYPE,
                "column %s has missing values, which %s cannot hold; take float32, "
                "or fill them first (SimpleImputer)",
                column->field.name, uni_dtype_name(dtype));
        for (size_t i = first; !valid[row] && i < first + width; i++) {
            if (dtype == UNI_F32)
                ((float *)to)[i] = NAN;
            else
                ((double *)to)[i] = NAN;
        }
    }
    return 0;
}

static int make_wide(const struct naming *naming, uni__reader *reader, uni_table *in,
                     uni_array **out, uni_error *err)
{
    size_t total = 0, offset = 0;
    int64_t rows = uni_table_num_rows(in);
    for (int i = 0; i < naming->count; i++) {
        const uni_field *field = &uni_table_find(in, naming->names[i])->field;
        if (field->kind != UNI_FIELD_NUMBER)
            return uni_error_set(err, UNI_EDTYPE, "column %s holds no numbers", field->name);
        total += width_of(field);
    }
    UNI_TRY(uni__reader_array(reader, out, naming->dtype, 2,
                              (const int64_t[]){ rows, (int64_t)total }, err));
    for (int i = 0; i < naming->count; i++) {
        const uni_table_column *column = uni_table_find(in, naming->names[i]);
        UNI_TRY(put_stripe(column, reader, uni_array_data(*out), naming->dtype, offset, total, rows,
                           err));
        UNI_TRY(put_gaps(column, uni_array_data(*out), naming->dtype, offset, total, rows, err));
        offset += width_of(&column->field);
    }
    return 0;
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

/* ---- making them ---- */

typedef int (*stage_function)(void *self, uni__reader *reader, uni_table *in, uni_table **out,
                              uni_error *err);

/* Takes the naming. The stage is tried on a table of no rows: that is the schema, and the check. */
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
        .name = (char *)name, .self = naming, .apply = apply, .free = free_naming
    };
    int status = from != NULL ? uni_dataset_schema(from, &before, err)
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
        return uni_error_set(err, UNI_EDTYPE, "cast: %d is no element type", (int)dtype);
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
