/*
 * scale.c - numeric preprocessors: StandardScaler, MinMaxScaler, MaxAbsScaler, Normalizer,
 * Concatenator. moments.c computes the statistics; a column of tensors has them per element.
 * Results are float32.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "base/element.h"
#include "data/preprocess/moments.h"
#include "data/preprocess/preprocess.h"
#include "data/table/matrix.h"

/* ---- statistics of all columns ---- */

int uni__fit_moments_begin(uni_preprocessor *p, const uni_table *schema, uni_error *err)
{
    uni__moments *all = calloc((size_t)p->num_columns + 1, sizeof *all);
    p->fitting = all;
    if (all == NULL)
        return uni__preprocess_no_memory(err);
    for (int i = 0; i < p->num_columns; i++) {
        const uni_table_column *column = NULL;
        UNI_TRY(uni__preprocess_column(p, schema, i, true, &column, err));
        if (!uni__dtype_is_plain(column->field.dtype))
            return uni_error_set(err, UNI_EDTYPE, "%s: column \"%s\" is of half precision; cast it",
                                 p->class_->name, p->columns[i]);
        UNI_TRY(uni__moments_new(&all[i], uni__matrix_width(&column->field), err));
    }
    all[p->num_columns].width = 0; /* marks the end */
    return 0;
}

int uni__fit_moments_observe(uni_preprocessor *p, const uni_table *table, uni_error *err)
{
    uni__moments *all = p->fitting;
    size_t rows = (size_t)uni_table_num_rows(table);
    for (int i = 0; i < p->num_columns; i++) {
        const uni_table_column *column = NULL;
        UNI_TRY(uni__preprocess_column(p, table, i, true, &column, err));
        const uint8_t *valid = column->valid != NULL ? uni_array_data(column->valid) : NULL;
        const char *data = uni_array_data(column->values);
        size_t row_bytes = all[i].width * uni_dtype_size(column->field.dtype);
        if (valid == NULL)
            uni__moments_add(&all[i], data, column->field.dtype, rows, true);
        for (size_t row = 0; valid != NULL && row < rows; row++)
            if (valid[row])
                uni__moments_add(&all[i], data + row * row_bytes, column->field.dtype, 1, true);
    }
    return 0;
}

void uni__fit_moments_free(const uni_preprocessor *p)
{
    uni__moments *all = p->fitting;
    for (uni__moments *one = all; one != NULL && one->width > 0; one++)
        uni__moments_free(one);
    free(all);
}

/* {"column": [[shift ...], [scale ...]]}: y = (x - shift) * scale, elementwise. */
static int put_numbers(uni_value *list, const double *numbers, size_t count)
{
    uni_value *inner = uni_value_list();
    for (size_t i = 0; i < count; i++)
        if (uni_list_take(inner, uni_value_float(numbers[i])) < 0) {
            uni_value_free(inner);
            return UNI_ENOMEM;
        }
    return uni_list_take(list, inner);
}

/* Derives shift and scale from the statistics of one element. */
typedef void (*rule)(const uni__moments *m, size_t i, double *shift, double *scale);

static void standard(const uni__moments *m, size_t i, double *shift, double *scale)
{
    double deviation = sqrt(uni__moments_variance(m, i));
    *shift = m->mean[i];
    *scale = deviation > 0 ? 1 / deviation : 0;
}

static void min_max(const uni__moments *m, size_t i, double *shift, double *scale)
{
    double span = m->high[i] - m->low[i];
    *shift = m->low[i];
    *scale = span > 0 && isfinite(span) ? 1 / span : 0;
}

static void max_abs(const uni__moments *m, size_t i, double *shift, double *scale)
{
    double largest = fmax(fabs(m->low[i]), fabs(m->high[i]));
    *shift = 0;
    *scale = largest > 0 && isfinite(largest) ? 1 / largest : 0;
}

static int finish_column(uni_value *state, const char *name, const uni__moments *m, rule make)
{
    double *numbers = calloc(m->width * 2 + 1, sizeof *numbers);
    uni_value *pair = uni_value_list();
    for (size_t i = 0; numbers != NULL && i < m->width; i++)
        make(m, i, &numbers[i], &numbers[m->width + i]);
    int status = numbers == NULL ? UNI_ENOMEM : put_numbers(pair, numbers, m->width);
    if (status == 0)
        status = put_numbers(pair, numbers + m->width, m->width);
    free(numbers);
    if (status < 0) {
        uni_value_free(pair);
        return status;
    }
    return uni_dict_take(state, name, pair);
}

static int finish_with(uni_preprocessor *p, rule make, uni_error *err)
{
    const uni__moments *all = p->fitting;
    p->state = uni_value_dict();
    for (int i = 0; i < p->num_columns; i++) {
        for (size_t k = 0; k < all[i].width; k++)
            if (all[i].count[k] == 0)
                return uni_error_set(err, UNI_EINVAL,
                                     "%s: column \"%s\" has only missing values; leave it out, or "
                                     "fill them first (SimpleImputer)",
                                     p->class_->name, p->columns[i]);
        if (p->state == NULL || finish_column(p->state, p->columns[i], &all[i], make) < 0)
            return uni__preprocess_no_memory(err);
    }
    return 0;
}

static int standard_finish(uni_preprocessor *p, uni_error *err)
{
    return finish_with(p, standard, err);
}

static int min_max_finish(uni_preprocessor *p, uni_error *err)
{
    return finish_with(p, min_max, err);
}

static int max_abs_finish(uni_preprocessor *p, uni_error *err)
{
    return finish_with(p, max_abs, err);
}

/* ---- y = (x - shift) * scale ---- */

struct scaling {
    size_t width;
    double *shift, *scale; /* per element of one column */
};

static int scaling_prepare(uni_preprocessor *p, uni_error *err)
{
    struct scaling *all = calloc((size_t)p->num_columns + 1, sizeof *all);
    p->ready = all;
    if (all == NULL)
        return uni__preprocess_no_memory(err);
    for (int i = 0; i < p->num_columns; i++) {
        const uni_value *pair = uni_dict_get(p->state, p->columns[i]);
        const uni_value *shift = uni_list_get(pair, 0), *scale = uni_list_get(pair, 1);
        size_t width = uni_list_size(shift);
        if (width == 0 || uni_list_size(scale) != width)
            return uni_error_set(err, UNI_EFORMAT, "the saved %s has no numbers for column \"%s\"",
                                 p->class_->name, p->columns[i]);
        all[i].shift = calloc(width * 2, sizeof *all[i].shift);
        if (all[i].shift == NULL)
            return uni__preprocess_no_memory(err);
        all[i].width = width;
        all[i].scale = all[i].shift + width;
        for (size_t k = 0; k < width; k++) {
            all[i].shift[k] = uni_value_as_float(uni_list_get(shift, k), 0);
            all[i].scale[k] = uni_value_as_float(uni_list_get(scale, k), 0);
        }
    }
    return 0;
}

static void scaling_free(void *ready)
{
    for (struct scaling *one = ready; one != NULL && one->width > 0; one++)
        free(one->shift);
    free(ready);
}

/* Allocates a float32 column of the same shape. Missing integers become NaN. */
static int new_like(uni_table_column *out, const uni_table_column *in, int64_t rows, uni_error *err)
{
    int64_t shape[UNI_MAX_DIMS] = { rows };
    for (int i = 0; i < in->field.ndim; i++)
        shape[i + 1] = in->field.shape[i];
    *out = (uni_table_column){ .field = in->field };
    out->field.dtype = UNI_F32;
    return uni_array_new(&out->values, UNI_F32, in->field.ndim + 1, shape, err);
}

static void scale_values(const struct scaling *scaling, const uni_table_column *in, int64_t rows,
                         float *out)
{
    const void *data = uni_array_data(in->values);
    const uint8_t *valid = in->valid != NULL ? uni_array_data(in->valid) : NULL;
    for (int64_t row = 0; row < rows; row++)
        for (size_t k = 0; k < scaling->width; k++) {
            size_t index = (size_t)row * scaling->width + k;
            double value = uni__element(data, in->field.dtype, index);
            out[index] = valid != NULL && !valid[row]
                             ? NAN
                             : (float)((value - scaling->shift[k]) * scaling->scale[k]);
        }
}

static int scale_column(const uni_preprocessor *p, int index, const uni_table *in,
                        const void *context, uni_table_column *out, uni_error *err)
{
    const struct scaling *scaling = &((const struct scaling *)p->ready)[index];
    const uni_table_column *column = NULL;
    int64_t rows = uni_table_num_rows(in);
    UNI_TRY(uni__preprocess_column(p, in, index, true, &column, err));
    if (uni__matrix_width(&column->field) != scaling->width)
        return uni_error_set(
            err, UNI_ESHAPE, "%s was fitted to %zu numbers a row of column \"%s\", not %zu",
            p->class_->name, scaling->width, p->columns[index], uni__matrix_width(&column->field));
    UNI_TRY(new_like(out, column, rows, err));
    scale_values(scaling, column, rows, uni_array_data(out->values));
    return 0;
}

static int scaling_apply(const uni_preprocessor *p, uni_table *in, uni_table **out, uni_error *err)
{
    return uni__preprocess_each(p, in, scale_column, NULL, out, err);
}

#define SCALER(finish_)                                                                            \
    .options = "columns output_columns ", .needs_fit = true, .begin = uni__fit_moments_begin,      \
    .observe = uni__fit_moments_observe, .finish = (finish_), .prepare = scaling_prepare,          \
    .apply = scaling_apply, .free_fitting = uni__fit_moments_free, .free_ready = scaling_free
const uni__preprocess_class uni__standard_scaler = { .name = "StandardScaler",
                                                     SCALER(standard_finish) };
const uni__preprocess_class uni__min_max_scaler = { .name = "MinMaxScaler",
                                                    SCALER(min_max_finish) };
const uni__preprocess_class uni__max_abs_scaler = { .name = "MaxAbsScaler",
                                                    SCALER(max_abs_finish) };

/* ---- Concatenator and Normalizer: rows over several columns ---- */

/* All columns side by side: (rows, width). */
static int side_by_side(const uni_preprocessor *p, const uni_table *in, uni_dtype dtype,
                        uni_array **out, uni_error *err)
{
    size_t width = 0;
    for (int i = 0; i < p->num_columns; i++) {
        const uni_table_column *column = NULL;
        UNI_TRY(uni__preprocess_column(p, in, i, true, &column, err));
    }
    UNI_TRY(uni__matrix_width_of(in, p->columns, p->num_columns, &width, err));
    UNI_TRY(uni_array_new(out, dtype, 2,
                          (const int64_t[]){ uni_table_num_rows(in), (int64_t)width }, err));
    int status = uni__matrix_fill(in, p->columns, p->num_columns, *out, err);
    if (status < 0) {
        uni_error_prefix(err, "%s", p->class_->name);
        uni_array_unref(*out);
        *out = NULL;
    }
    return status;
}

static uni_dtype joined_dtype(const uni_preprocessor *p)
{
    int dtype = uni__dtype_from_name(uni_dict_get_string(p->options, "dtype", "float32"));
    return dtype > 0 ? (uni_dtype)dtype : (uni_dtype)0;
}

static int concatenator_check(const uni_preprocessor *p, uni_error *err)
{
    return joined_dtype(p) != 0
               ? 0
               : uni_error_set(err, UNI_EINVAL, "Concatenator: there is no element type %s",
                               uni_dict_get_string(p->options, "dtype", ""));
}

static int concatenator_apply(const uni_preprocessor *p, uni_table *in, uni_table **out,
                              uni_error *err)
{
    const char *name = uni_dict_get_string(p->options, "output_column_name", "concat_out");
    uni_array *joined = NULL;
    int status = 0;
    UNI_TRY(side_by_side(p, in, joined_dtype(p), &joined, err));
    UNI_TRY_GOTO(uni_table_new(out, uni_table_num_rows(in), err), done);
    for (int i = 0; i < uni_table_num_columns(in) && status == 0; i++) {
        const uni_table_column *column = uni_table_column_at(in, i);
        bool taken = false;
        for (int k = 0; k < p->num_columns && !taken; k++)
            taken = strcmp(column->field.name, p->columns[k]) == 0;
        if (!taken)
            status = uni_table_add(*out, column, err);
    }
    if (status == 0)
        status = uni_table_add_array(*out, name, joined, err);
    if (status < 0) {
        uni_error_prefix(err, "Concatenator");
        uni_table_unref(*out);
        *out = NULL;
    }
done:
    uni_array_unref(joined);
    return status;
}

const uni__preprocess_class uni__concatenator = { .name = "Concatenator",
                                                  .options = "columns output_column_name dtype ",
                                                  .check = concatenator_check,
                                                  .apply = concatenator_apply };

/* Ignores missing values (NaN). Divides by the largest element before squaring, so that the sum
 * does not overflow. */
static double norm_of(const double *row, size_t width, const char *norm)
{
    double largest = 0, sum = 0;
    for (size_t k = 0; k < width; k++)
        largest = fmax(largest, fabs(row[k]));
    if (norm[0] == 'm' || largest == 0 || isinf(largest))
        return largest;
    for (size_t k = 0; k < width; k++) {
        double part = isnan(row[k]) ? 0 : fabs(row[k]) / largest;
        sum += norm[1] == '2' ? part * part : part;
    }
    return largest * (norm[1] == '2' ? sqrt(sum) : sum);
}

static int normalizer_check(const uni_preprocessor *p, uni_error *err)
{
    const char *norm = uni_dict_get_string(p->options, "norm", "l2");
    if (strcmp(norm, "l1") != 0 && strcmp(norm, "l2") != 0 && strcmp(norm, "max") != 0)
        return uni_error_set(err, UNI_EINVAL, "Normalizer: norm is l1, l2 or max, not %s", norm);
    return 0;
}

static int normalize_column(const uni_preprocessor *p, int index, const uni_table *in,
                            const void *context, uni_table_column *out, uni_error *err)
{
    const double *norms = context;
    const uni_table_column *column = uni_table_find(in, p->columns[index]);
    const uint8_t *valid = column->valid != NULL ? uni_array_data(column->valid) : NULL;
    int64_t rows = uni_table_num_rows(in);
    size_t width = uni__matrix_width(&column->field);
    UNI_TRY(new_like(out, column, rows, err));
    float *to = uni_array_data(out->values);
    for (size_t i = 0; i < (size_t)rows * width; i++) {
        double value = uni__element(uni_array_data(column->values), column->field.dtype, i),
               norm = norms[i / width];
        to[i] =
            valid != NULL && !valid[i / width] ? NAN : (float)(norm != 0 ? value / norm : value);
    }
    return 0;
}

static int normalizer_apply(const uni_preprocessor *p, uni_table *in, uni_table **out,
                            uni_error *err)
{
    const char *norm = uni_dict_get_string(p->options, "norm", "l2");
    uni_array *joined = NULL;
    UNI_TRY(side_by_side(p, in, UNI_F64, &joined, err));
    size_t rows = (size_t)uni_table_num_rows(in), width = (size_t)uni_array_shape(joined)[1];
    double *norms = calloc(rows + 1, sizeof *norms);
    for (size_t row = 0; norms != NULL && row < rows; row++)
        norms[row] = norm_of((const double *)uni_array_data(joined) + row * width, width, norm);
    uni_array_unref(joined);
    int status = norms == NULL ? uni__preprocess_no_memory(err)
                               : uni__preprocess_each(p, in, normalize_column, norms, out, err);
    free(norms);
    return status;
}

const uni__preprocess_class uni__normalizer = { .name = "Normalizer",
                                                .options = "columns output_columns norm ",
                                                .check = normalizer_check,
                                                .apply = normalizer_apply };
