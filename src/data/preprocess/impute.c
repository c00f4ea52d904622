/*
 * impute.c - SimpleImputer: replaces missing values by the column's mean (from moments), its most
 * frequent value (from counts) or a constant. State: {"column": [value]}.
 *
 * A column keeps its type if the type can hold the fill value. Floating-point columns take any
 * number, integer columns take integers exactly; a mean turns an integer column into float64.
 */
#include <string.h>

#include "data/table/cast.h"
#include "data/preprocess/counts.h"
#include "data/preprocess/moments.h"

static const char *strategy_of(const uni_preprocessor *p)
{
    return uni_dict_get_string(p->options, "strategy", "mean");
}

static bool is_mean(const uni_preprocessor *p)
{
    return strcmp(strategy_of(p), "mean") == 0;
}

static int imputer_check(const uni_preprocessor *p, uni_error *err)
{
    const char *strategy = strategy_of(p);
    const uni_value *fill = uni_dict_get(p->options, "fill_value");
    bool constant = strcmp(strategy, "constant") == 0;
    if (!is_mean(p) && !constant && strcmp(strategy, "most_frequent") != 0)
        return uni_error_set(err, UNI_EINVAL,
                             "SimpleImputer: strategy is mean, most_frequent or constant, not %s",
                             strategy);
    if (constant && fill == NULL)
        return uni_error_set(err, UNI_EINVAL, "SimpleImputer: constant needs a fill_value");
    if (!constant && fill != NULL)
        return uni_error_set(err, UNI_EINVAL,
                             "SimpleImputer: fill_value is for strategy=\"constant\", not %s",
                             strategy);
    return 0;
}

/* ---- fitting ---- */

static int imputer_begin(uni_preprocessor *p, const uni_table *schema, uni_error *err)
{
    const uni_table_column *column = NULL;
    for (int i = 0; i < p->num_columns; i++) {
        UNI_TRY(uni__countable(p, schema, i, &column, err));
        if (is_mean(p) && uni__is_text(column))
            return uni_error_set(err, UNI_EDTYPE,
                                 "SimpleImputer: column \"%s\" is text and has no mean; use "
                                 "most_frequent",
                                 p->columns[i]);
        const uni_value *fill = uni_dict_get(p->options, "fill_value");
        if (fill != NULL && uni_value_is_number(fill) == uni__is_text(column))
            return uni_error_set(err, UNI_EDTYPE,
                                 "SimpleImputer: column \"%s\" is %s, which fill_value is not",
                                 p->columns[i], uni__is_text(column) ? "text" : "numbers");
    }
    return is_mean(p) ? uni__fit_moments_begin(p, schema, err)
                      : uni__fit_counts_begin(p, schema, err);
}

static int imputer_observe(uni_preprocessor *p, const uni_table *table, uni_error *err)
{
    if (strcmp(strategy_of(p), "constant") == 0)
        return 0;
    return is_mean(p) ? uni__fit_moments_observe(p, table, err)
                      : uni__fit_counts_observe(p, table, err);
}

/* Returns NULL if the column has no values. */
static uni_value *filling_of(const uni_preprocessor *p, int index)
{
    if (strcmp(strategy_of(p), "constant") == 0)
        return uni_value_copy(uni_dict_get(p->options, "fill_value"));
    if (is_mean(p)) {
        const uni__moments *moments = &((const uni__moments *)p->fitting)[index];
        return moments->count[0] > 0 ? uni_value_float(moments->mean[0]) : NULL;
    }
    const uni__counts *counts = &((const uni__counts *)p->fitting)[index];
    const uni__word *best = NULL;
    for (size_t i = 0; i < counts->values.count; i++)
        if (best == NULL || counts->values.words[i].count > best->count)
            best = &counts->values.words[i];
    return best != NULL ? uni__counts_value(counts, best) : NULL;
}

static int imputer_finish(uni_preprocessor *p, uni_error *err)
{
    p->state = uni_value_dict();
    for (int i = 0; i < p->num_columns; i++) {
        uni_value *list = uni_value_list(), *filling = filling_of(p, i);
        if (filling == NULL) {
            uni_value_free(list);
            return uni_error_set(err, UNI_EINVAL,
                                 "SimpleImputer: column \"%s\" has only missing values and so no "
                                 "%s; use constant",
                                 p->columns[i], strategy_of(p));
        }
        if (uni_list_take(list, filling) < 0) {
            uni_value_free(list);
            return uni__preprocess_no_memory(err);
        }
        if (p->state == NULL || uni_dict_take(p->state, p->columns[i], list) < 0)
            return uni__preprocess_no_memory(err);
    }
    return 0;
}

static void imputer_free(const uni_preprocessor *p)
{
    if (is_mean(p))
        uni__fit_moments_free(p);
    else
        uni__fit_counts_free(p);
}

/* ---- applying ---- */

/* Converts the fill value to the column's type. */
static int filling_as(const uni_value *fill, uni_dtype dtype, void *out, uni_error *err)
{
    if (uni_value_type_of(fill) == UNI_TYPE_INT) {
        int64_t number = uni_value_as_int(fill, 0);
        return uni__cast(out, dtype, &number, UNI_I64, 1, err);
    }
    double number = uni_value_as_float(fill, 0);
    return uni__cast(out, dtype, &number, UNI_F64, 1, err);
}

static int impute_number(const uni_value *fill, const uni_table_column *in, int64_t rows,
                         uni_table_column *out, uni_error *err)
{
    bool real = in->field.dtype == UNI_F32 || in->field.dtype == UNI_F64;
    uni_dtype dtype = real || uni_value_type_of(fill) == UNI_TYPE_INT ? in->field.dtype : UNI_F64;
    size_t size = uni_dtype_size(dtype);
    char filling[16];
    out->field = (uni_field){ .kind = UNI_FIELD_NUMBER, .dtype = dtype };
    UNI_TRY(filling_as(fill, dtype, filling, err));
    UNI_TRY(uni_array_new(&out->values, dtype, 1, &rows, err));
    UNI_TRY(uni__cast(uni_array_data(out->values), dtype, uni_array_data(in->values),
                      in->field.dtype, (size_t)rows, err));
    for (int64_t row = 0; row < rows; row++) {
        uni__key key;
        if (!uni__key_at(&key, in, row))
            memcpy((char *)uni_array_data(out->values) + (size_t)row * size, filling, size);
    }
    return 0;
}

static int impute_text(const uni_value *fill, const uni_table_column *in, int64_t rows,
                       uni_table_column *out, uni_error *err)
{
    size_t fill_size = 0;
    const char *fill_data = uni_value_as_bytes(fill, &fill_size);
    int64_t count = rows + 1, total = 0;
    uni__key key;
    out->field = in->field;
    for (int64_t row = 0; row < rows; row++)
        total += (int64_t)(uni__key_at(&key, in, row) ? key.size : fill_size);
    UNI_TRY(uni_array_new(&out->offsets, UNI_I64, 1, &count, err));
    UNI_TRY(uni_array_new(&out->values, UNI_U8, 1, &total, err));
    int64_t *offsets = uni_array_data(out->offsets);
    char *to = uni_array_data(out->values);
    for (int64_t row = 0; row < rows; row++) {
        if (!uni__key_at(&key, in, row)) {
            key.data = fill_data;
            key.size = fill_size;
        }
        if (key.size > 0)
            memcpy(to + offsets[row], key.data, key.size);
        offsets[row + 1] = offsets[row] + (int64_t)key.size;
    }
    return 0;
}

static int impute(const uni_preprocessor *p, int index, const uni_table *in, const void *context,
                  uni_table_column *out, uni_error *err)
{
    const uni_value *fill = uni_list_get(uni_dict_get(p->state, p->columns[index]), 0);
    const uni_table_column *column = NULL;
    UNI_TRY(uni__countable(p, in, index, &column, err));
    if (fill == NULL || uni_value_is_number(fill) == uni__is_text(column))
        return uni_error_set(err, UNI_EDTYPE,
                             "SimpleImputer: column \"%s\" is %s, which it was not fitted to",
                             p->columns[index], uni__is_text(column) ? "text" : "numbers");
    int64_t rows = uni_table_num_rows(in);
    int status = uni__is_text(column) ? impute_text(fill, column, rows, out, err)
                                      : impute_number(fill, column, rows, out, err);
    return status < 0 ? uni_error_prefix(err, "SimpleImputer: column \"%s\"", p->columns[index])
                      : 0;
}

static int imputer_apply(const uni_preprocessor *p, uni_table *in, uni_table **out, uni_error *err)
{
    return uni__preprocess_each(p, in, impute, NULL, out, err);
}

const uni__preprocess_class uni__simple_imputer = {
    .name = "SimpleImputer",
    .options = "columns output_columns strategy fill_value ",
    .needs_fit = true,
    .check = imputer_check,
    .begin = imputer_begin,
    .observe = imputer_observe,
    .finish = imputer_finish,
    .apply = imputer_apply,
    .free_fitting = imputer_free
};
