/*
 * encode.c - categorical preprocessors: OrdinalEncoder, LabelEncoder, OneHotEncoder. Values are
 * text or numbers (counts.h), numbered in sorted order. State: {"column": [values in order]}.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/preprocess/counts.h"

/* ---- fitting ---- */

/* How many categories of a column to keep. max_categories is one number, or a number for some of
 * the columns. 0: all. */
static int64_t limit_of(const uni_preprocessor *p, int index)
{
    const uni_value *limits = uni_dict_get(p->options, "max_categories");
    return uni_value_type_of(limits) == UNI_TYPE_DICT
               ? uni_dict_get_int(limits, p->columns[index], 0)
               : uni_value_as_int(limits, 0);
}

static int check_limits(const uni_preprocessor *p, uni_error *err)
{
    const uni_value *limits = uni_dict_get(p->options, "max_categories");
    for (size_t i = 0; i < uni_dict_size(limits); i++) {
        bool known = false;
        for (int k = 0; k < p->num_columns; k++)
            known = known || strcmp(uni_dict_key_at(limits, i), p->columns[k]) == 0;
        if (!known)
            return uni_error_set(err, UNI_EINVAL,
                                 "%s: max_categories names \"%s\", which is none of its columns",
                                 p->class_->name, uni_dict_key_at(limits, i));
    }
    for (int k = 0; k < p->num_columns; k++)
        if (limit_of(p, k) < 0)
            return uni_error_set(err, UNI_EINVAL, "%s: max_categories must be positive, not %lld",
                                 p->class_->name, (long long)limit_of(p, k));
    return 0;
}

static int encoder_finish(uni_preprocessor *p, uni_error *err)
{
    const uni__counts *all = p->fitting;
    p->state = uni_value_dict();
    for (int i = 0; i < p->num_columns; i++) {
        uni_value *list = p->state != NULL ? uni__counts_sorted(&all[i], limit_of(p, i)) : NULL;
        if (list == NULL || uni_dict_take(p->state, p->columns[i], list) < 0)
            return uni__preprocess_no_memory(err);
    }
    return 0;
}

/* ---- encoding ---- */

static int encoder_prepare(uni_preprocessor *p, uni_error *err)
{
    uni__counts *all = calloc((size_t)p->num_columns + 1, sizeof *all);
    p->ready = all;
    if (all == NULL)
        return uni__preprocess_no_memory(err);
    all[p->num_columns].last = true;
    for (int i = 0; i < p->num_columns; i++) {
        const uni_value *list = uni_dict_get(p->state, p->columns[i]);
        if (uni_value_type_of(list) != UNI_TYPE_LIST)
            return uni_error_set(err, UNI_EFORMAT, "the saved %s has no values of column \"%s\"",
                                 p->class_->name, p->columns[i]);
        if (uni__counts_load(&all[i], list, err) < 0)
            return uni_error_prefix(err, "the saved %s", p->class_->name);
    }
    return 0;
}

/* Returns -1 if the value is missing or unknown; *missing says which. */
static int64_t number_at(const uni__counts *counts, const uni_table_column *column, int64_t row,
                         bool *missing)
{
    uni__key key;
    *missing = !uni__key_at(&key, column, row);
    return *missing ? -1 : uni__counts_find(counts, &key);
}

static int unknown(const uni_table_column *column, int64_t row, uni_error *err)
{
    uni__key key;
    char text[64];
    if (uni__is_text(column) && uni__key_at(&key, column, row))
        snprintf(text, sizeof text, "\"%.*s\"", (int)(key.size < 40 ? key.size : 40), key.data);
    else
        snprintf(text, sizeof text, "a number");
    return uni_error_set(err, UNI_EINVAL,
                         "LabelEncoder: column \"%s\" has %s, which was not there when it was "
                         "fitted",
                         column->field.name, text);
}

static int encode_ordinal(const uni_preprocessor *p, int index, const uni_table *in,
                          const void *context, uni_table_column *out, uni_error *err)
{
    const uni__counts *counts = &((const uni__counts *)p->ready)[index];
    const uni_table_column *column = NULL;
    bool strict = p->class_ == &uni__label_encoder;
    int64_t rows = uni_table_num_rows(in);
    UNI_TRY(uni__countable(p, in, index, &column, err));
    out->field = (uni_field){ .kind = UNI_FIELD_NUMBER, .dtype = UNI_I64 };
    UNI_TRY(uni_array_new(&out->values, UNI_I64, 1, &rows, err));
    for (int64_t row = 0; row < rows; row++) {
        bool missing = false;
        int64_t number = number_at(counts, column, row, &missing);
        if (number < 0 && strict && !missing)
            return unknown(column, row, err);
        ((int64_t *)uni_array_data(out->values))[row] = number < 0 ? 0 : number;
        if (number < 0 && out->valid == NULL) {
            UNI_TRY(uni_array_new(&out->valid, UNI_B8, 1, &rows, err));
            memset(uni_array_data(out->valid), 1, (size_t)rows);
        }
        if (number < 0)
            ((uint8_t *)uni_array_data(out->valid))[row] = 0;
    }
    return 0;
}

static int encode_one_hot(const uni_preprocessor *p, int index, const uni_table *in,
                          const void *context, uni_table_column *out, uni_error *err)
{
    const uni__counts *counts = &((const uni__counts *)p->ready)[index];
    const uni_table_column *column = NULL;
    int64_t width = (int64_t)counts->values.count, rows = uni_table_num_rows(in);
    UNI_TRY(uni__countable(p, in, index, &column, err));
    out->field =
        (uni_field){ .kind = UNI_FIELD_NUMBER, .dtype = UNI_F32, .ndim = 1, .shape = { width } };
    UNI_TRY(uni_array_new(&out->values, UNI_F32, 2, (const int64_t[]){ rows, width }, err));
    for (int64_t row = 0; row < rows; row++) {
        bool missing = false;
        int64_t number = number_at(counts, column, row, &missing);
        if (number >= 0)
            ((float *)uni_array_data(out->values))[row * width + number] = 1;
    }
    return 0;
}

static int ordinal_apply(const uni_preprocessor *p, uni_table *in, uni_table **out, uni_error *err)
{
    return uni__preprocess_each(p, in, encode_ordinal, NULL, out, err);
}

static int one_hot_apply(const uni_preprocessor *p, uni_table *in, uni_table **out, uni_error *err)
{
    return uni__preprocess_each(p, in, encode_one_hot, NULL, out, err);
}

#define ENCODER(apply_)                                                                            \
    .needs_fit = true, .begin = uni__fit_counts_begin, .observe = uni__fit_counts_observe,         \
    .finish = encoder_finish, .prepare = encoder_prepare, .apply = (apply_),                       \
    .free_fitting = uni__fit_counts_free, .free_ready = uni__counts_free
const uni__preprocess_class uni__ordinal_encoder = { .name = "OrdinalEncoder",
                                                     .options = "columns output_columns ",
                                                     ENCODER(ordinal_apply) };
const uni__preprocess_class uni__label_encoder = { .name = "LabelEncoder",
                                                   .options = "label_column output_columns ",
                                                   ENCODER(ordinal_apply) };
const uni__preprocess_class uni__one_hot_encoder = { .name = "OneHotEncoder",
                                                     .options =
                                                         "columns output_columns max_categories ",
                                                     .check = check_limits,
                                                     ENCODER(one_hot_apply) };
