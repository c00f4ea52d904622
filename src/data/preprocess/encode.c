/*
 * encode.c - preprocessors of categories: OrdinalEncoder, LabelEncoder, OneHotEncoder, and SimpleImputer. Values are text or numbers; they are counted in the vocabulary
 * of tokenize.h (a number by its bytes) and numbered in sorted order. State: {"column": [values in order]}; SimpleImputer's: {"column": [value]}.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "data/preprocess/moments.h"
#include "data/preprocess/preprocess.h"
#include "data/preprocess/tokenize.h"

#define MAX_CATEGORIES 10000000

/* The whole value is one token. */
static const uni__tokenizer whole = { .split = UNI__SPLIT_NONE, .ngrams = 1 };

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory for a preprocessor");
}

/* ---- values as bytes ---- */

struct key {
    const char *data;
    size_t size;
    double number;
};

static bool is_text(const uni_table_column *column)
{
    return column->field.kind == UNI_FIELD_STRING || column->field.kind == UNI_FIELD_BINARY;
}

/* false: the value is missing. */
static bool key_at(const uni_table_column *column, int64_t row, struct key *key)
{
    const uint8_t *valid = column->valid != NULL ? uni_array_data(column->valid) : NULL;
    if (valid != NULL && !valid[row])
        return false;
    if (is_text(column)) {
        const int64_t *offsets = uni_array_data(column->offsets);
        const char *values = uni_array_data(column->values);
        key->data = values != NULL ? values + offsets[row] : "";
        key->size = (size_t)(offsets[row + 1] - offsets[row]);
        return true;
    }
    key->number =
        uni__element(uni_array_data(column->values), column->field.dtype, (size_t)row) + 0.0;
    key->data = (const char *)&key->number;
    key->size = sizeof key->number;
    return !isnan(key->number);
}

static int encodable(const uni_preprocessor *p, const uni_table *table, int index,
                     const uni_table_column **out, uni_error *err)
{
    char text[100];
    UNI_TRY(uni__preprocess_column(p, table, index, false, out, err));
    const uni_field *field = &(*out)->field;
    if (is_text(*out) ||
        (field->kind == UNI_FIELD_NUMBER && field->ndim == 0 && uni__dtype_is_plain(field->dtype)))
        return 0;
    return uni_error_set(err, UNI_EDTYPE, "%s: column \"%s\" is %s, not text or single numbers",
                         p->class_->name, field->name, uni_field_text(text, sizeof text, field));
}

/* ---- fitting: how often every value comes ---- */

struct counted {
    uni__vocabulary values;
    bool text, last;
};

static int count_begin(uni_preprocessor *p, const uni_table *schema, uni_error *err)
{
    struct counted *all = calloc((size_t)p->num_columns + 1, sizeof *all);
    p->fitting = all;
    if (all == NULL)
        return no_memory(err);
    all[p->num_columns].last = true;
    for (int i = 0; i < p->num_columns; i++) {
        const uni_table_column *column = NULL;
        UNI_TRY(encodable(p, schema, i, &column, err));
        all[i].text = is_text(column);
    }
    return 0;
}

static int count_observe(uni_preprocessor *p, const uni_table *table, uni_error *err)
{
    struct counted *all = p->fitting;
    for (int i = 0; i < p->num_columns; i++) {
        const uni_table_column *column = NULL;
        UNI_TRY(encodable(p, table, i, &column, err));
        for (int64_t row = 0; row < uni_table_num_rows(table); row++) {
            struct key key;
            if (!key_at(column, row, &key))
                continue;
            int64_t found = uni__vocabulary_find(&all[i].values, &whole, key.data, key.size);
            if (found < 0) {
                if (all[i].values.count >= MAX_CATEGORIES)
                    return uni_error_set(err, UNI_ELIMIT,
                                         "%s: column \"%s\" has more than %d different values",
                                         p->class_->name, p->columns[i], MAX_CATEGORIES);
                UNI_TRY(uni__vocabulary_add(&all[i].values, &whole, key.data, key.size, err));
                found = (int64_t)all[i].values.count - 1;
            }
            all[i].values.words[found].count++;
        }
    }
    return 0;
}

static void count_free(void *fitting)
{
    for (struct counted *one = fitting; one != NULL && !one->last; one++)
        uni__vocabulary_clear(&one->values);
    free(fitting);
}

static double number_of(const uni__word *word)
{
    double number;
    memcpy(&number, word->text, sizeof number);
    return number;
}

static int by_text(const void *a_, const void *b_)
{
    const uni__word *a = *(const uni__word *const *)a_, *b = *(const uni__word *const *)b_;
    size_t size = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->text, b->text, size);
    return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

static int by_number(const void *a, const void *b)
{
    double x = number_of(*(const uni__word *const *)a), y = number_of(*(const uni__word *const *)b);
    return (x > y) - (x < y);
}

static int by_count(const void *a_, const void *b_)
{
    const uni__word *a = *(const uni__word *const *)a_, *b = *(const uni__word *const *)b_;
    return (b->count > a->count) - (b->count < a->count);
}

static uni_value *value_of(const struct counted *counted, const uni__word *word)
{
    return counted->text ? uni_value_string_n(word->text, word->size)
                         : uni_value_float(number_of(word));
}

/* The values in sorted order; with a limit only the most frequent of them. */
static int finish_values(uni_value *state, const char *name, const struct counted *counted,
                         int64_t limit)
{
    size_t count = counted->values.count;
    const uni__word **words = calloc(count + 1, sizeof *words);
    uni_value *list = uni_value_list();
    int status = words != NULL ? 0 : UNI_ENOMEM;
    int (*order)(const void *, const void *) = counted->text ? by_text : by_number;
    for (size_t i = 0; status == 0 && i < count; i++)
        words[i] = &counted->values.words[i];
    if (status == 0) {
        qsort(words, count, sizeof *words, order);
        if (limit > 0 && (size_t)limit < count) {
            qsort(words, count, sizeof *words, by_count);
            count = (size_t)limit;
            qsort(words, count, sizeof *words, order);
        }
    }
    for (size_t i = 0; status == 0 && i < count; i++)
        status = uni_list_take(list, value_of(counted, words[i]));
    free(words);
    if (status < 0) {
        uni_value_free(list);
        return status;
    }
    return uni_dict_take(state, name, list);
}

static int count_finish(uni_preprocessor *p, uni_error *err)
{
    const struct counted *all = p->fitting;
    const uni_value *limits = uni_dict_get(p->options, "max_categories");
    p->state = uni_value_dict();
    for (int i = 0; i < p->num_columns; i++) {
        int64_t limit = uni_value_type_of(limits) == UNI_TYPE_DICT
                            ? uni_dict_get_int(limits, p->columns[i], 0)
                            : uni_value_as_int(limits, 0);
        if (p->state == NULL || finish_values(p->state, p->columns[i], &all[i], limit) < 0)
            return no_memory(err);
    }
    return 0;
}

/* ---- numbers of values ---- */

static int table_prepare(uni_preprocessor *p, uni_error *err)
{
    struct counted *all = calloc((size_t)p->num_columns + 1, sizeof *all);
    p->ready = all;
    if (all == NULL)
        return no_memory(err);
    all[p->num_columns].last = true;
    for (int i = 0; i < p->num_columns; i++) {
        const uni_value *list = uni_dict_get(p->state, p->columns[i]);
        if (uni_value_type_of(list) != UNI_TYPE_LIST)
            return uni_error_set(err, UNI_EFORMAT, "the saved %s has no values of column \"%s\"",
                                 p->class_->name, p->columns[i]);
        for (size_t k = 0; k < uni_list_size(list); k++) {
            const uni_value *value = uni_list_get(list, k);
            double number = uni_value_as_float(value, 0) + 0.0;
            size_t size = sizeof number;
            const void *data = &number;
            if (!uni_value_is_number(value)) {
                all[i].text = true;
                data = uni_value_as_bytes(value, &size);
            }
            if (data == NULL)
                return uni_error_set(err, UNI_EFORMAT, "the saved %s is damaged", p->class_->name);
            UNI_TRY(uni__vocabulary_add(&all[i].values, &whole, data, size, err));
        }
    }
    return 0;
}

/* -1: missing or unknown; *known says which. */
static int64_t number_at(const struct counted *values, const uni_table_column *column, int64_t row,
                         bool *missing)
{
    struct key key;
    *missing = !key_at(column, row, &key);
    return *missing ? -1 : uni__vocabulary_find(&values->values, &whole, key.data, key.size);
}

typedef int (*encode_function)(const uni_preprocessor *p, const struct counted *values,
                               const uni_table_column *in, int64_t rows, uni_table_column *out,
                               uni_error *err);

static int apply_each(const uni_preprocessor *p, uni_table *in, uni_table **out,
                      encode_function encode, uni_error *err)
{
    const struct counted *all = p->ready;
    uni_table *table = uni_table_ref(in);
    int status = 0;
    for (int i = 0; i < p->num_columns && status == 0; i++) {
        const uni_table_column *column = NULL;
        uni_table_column made = { 0 };
        uni_table *next = NULL;
        status = encodable(p, table, i, &column, err);
        if (status == 0)
            status = encode(p, &all[i], column, uni_table_num_rows(in), &made, err);
        if (status == 0)
            status = uni__preprocess_replace(&next, table, p->columns[i], &made, err);
        uni_array_unref(made.values);
        uni_array_unref(made.valid);
        if (status == 0) {
            uni_table_unref(table);
            table = next;
        }
    }
    if (status < 0)
        uni_table_unref(table);
    else
        *out = table;
    return status;
}

static int encode_ordinal(const uni_preprocessor *p, const struct counted *values,
                          const uni_table_column *in, int64_t rows, uni_table_column *out,
                          uni_error *err)
{
    bool strict = p->class_ == &uni__label_encoder;
    out->field = (uni_field){ .name = in->field.name, .kind = UNI_FIELD_NUMBER, .dtype = UNI_I64 };
    UNI_TRY(uni_array_new(&out->values, UNI_I64, 1, &rows, err));
    for (int64_t row = 0; row < rows; row++) {
        bool missing = false;
        int64_t number = number_at(values, in, row, &missing);
        if (number < 0 && strict && !missing)
            return uni_error_set(err, UNI_EINVAL,
                                 "LabelEncoder: column \"%s\" has a value that was not there when "
                                 "it was fitted",
                                 in->field.name);
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

static int encode_one_hot(const uni_preprocessor *p, const struct counted *values,
                          const uni_table_column *in, int64_t rows, uni_table_column *out,
                          uni_error *err)
{
    int64_t width = (int64_t)values->values.count;
    out->field = (uni_field){ .name = in->field.name,
                              .kind = UNI_FIELD_NUMBER,
                              .dtype = UNI_F32,
                              .ndim = 1,
                              .shape = { width } };
    UNI_TRY(uni_array_new(&out->values, UNI_F32, 2, (const int64_t[]){ rows, width }, err));
    for (int64_t row = 0; row < rows; row++) {
        bool missing = false;
        int64_t number = number_at(values, in, row, &missing);
        if (number >= 0)
            ((float *)uni_array_data(out->values))[row * width + number] = 1;
    }
    return 0;
}

static int ordinal_apply(const uni_preprocessor *p, uni_table *in, uni_table **out, uni_error *err)
{
    return apply_each(p, in, out, encode_ordinal, err);
}

static int one_hot_apply(const uni_preprocessor *p, uni_table *in, uni_table **out, uni_error *err)
{
    return apply_each(p, in, out, encode_one_hot, err);
}

#define ENCODER(apply_)                                                                            \
    .needs_fit = true, .begin = count_begin, .observe = count_observe, .finish = count_finish,     \
    .prepare = table_prepare, .apply = (apply_), .free_fitting = count_free,                       \
    .free_ready = count_free
const uni__preprocess_class uni__ordinal_encoder = { .name = "OrdinalEncoder",
                                                     ENCODER(ordinal_apply) };
const uni__preprocess_class uni__label_encoder = { .name = "LabelEncoder", ENCODER(ordinal_apply) };
const uni__preprocess_class uni__one_hot_encoder = { .name = "OneHotEncoder",
                                                     ENCODER(one_hot_apply) };

/* ---- SimpleImputer ---- */

/* The mean of what was counted, or the most frequent value. */
static uni_value *imputed(const struct counted *counted, bool mean)
{
    const uni__word *best = NULL;
    double sum = 0, count = 0;
    for (size_t i = 0; i < counted->values.count; i++) {
        const uni__word *word = &counted->values.words[i];
        if (best == NULL || word->count > best->count)
            best = word;
        if (mean) {
            sum += number_of(word) * (double)word->count;
            count += (double)word->count;
        }
    }
    if (mean)
        return uni_value_float(count > 0 ? sum / count : 0);
    return best != NULL ? value_of(counted, best) : uni_value_float(0);
}

static int imputer_finish(uni_preprocessor *p, uni_error *err)
{
    const struct counted *all = p->fitting;
    const char *strategy = uni_dict_get_string(p->options, "strategy", "mean");
    const uni_value *fill = uni_dict_get(p->options, "fill_value");
    bool mean = strcmp(strategy, "mean") == 0, constant = strcmp(strategy, "constant") == 0;
    if (!mean && !constant && strcmp(strategy, "most_frequent") != 0)
        return uni_error_set(err, UNI_EINVAL,
                             "SimpleImputer: strategy is mean, most_frequent or constant, not %s",
                             strategy);
    if (constant && fill == NULL)
        return uni_error_set(err, UNI_EINVAL, "SimpleImputer: constant needs a fill_value");
    p->state = uni_value_dict();
    for (int i = 0; i < p->num_columns; i++) {
        if (mean && all[i].text)
            return uni_error_set(err, UNI_EDTYPE,
                                 "SimpleImputer: column \"%s\" is text and has no mean; use "
                                 "most_frequent",
                                 p->columns[i]);
        uni_value *list = uni_value_list();
        if (p->state == NULL ||
            uni_list_take(list, constant ? uni_value_copy(fill) : imputed(&all[i], mean)) < 0) {
            uni_value_free(list);
            return no_memory(err);
        }
        if (uni_dict_take(p->state, p->columns[i], list) < 0)
            return no_memory(err);
    }
    return 0;
}

/* Numbers become float64, so that a mean fits. */
static int impute_number(const uni_value *fill, const uni_table_column *in, int64_t rows,
                         uni_table_column *out, uni_error *err)
{
    out->field = (uni_field){ .name = in->field.name, .kind = UNI_FIELD_NUMBER, .dtype = UNI_F64 };
    UNI_TRY(uni_array_new(&out->values, UNI_F64, 1, &rows, err));
    for (int64_t row = 0; row < rows; row++) {
        struct key key;
        ((double *)uni_array_data(out->values))[row] =
            key_at(in, row, &key) ? key.number : uni_value_as_float(fill, 0);
    }
    return 0;
}

static int impute_text(const uni_value *fill, const uni_table_column *in, int64_t rows,
                       uni_table_column *out, uni_error *err)
{
    size_t fill_size = 0;
    const char *fill_data = uni_value_as_bytes(fill, &fill_size);
    int64_t count = rows + 1, total = 0;
    struct key key;
    out->field = in->field;
    for (int64_t row = 0; row < rows; row++)
        total += (int64_t)(key_at(in, row, &key) ? key.size : fill_size);
    UNI_TRY(uni_array_new(&out->offsets, UNI_I64, 1, &count, err));
    UNI_TRY(uni_array_new(&out->values, UNI_U8, 1, &total, err));
    int64_t *offsets = uni_array_data(out->offsets);
    char *to = uni_array_data(out->values);
    for (int64_t row = 0; row < rows; row++) {
        if (!key_at(in, row, &key))
            key = (struct key){ .data = fill_data, .size = fill_size };
        if (key.size > 0)
            memcpy(to + offsets[row], key.data, key.size);
        offsets[row + 1] = offsets[row] + (int64_t)key.size;
    }
    return 0;
}

static int imputer_apply(const uni_preprocessor *p, uni_table *in, uni_table **out, uni_error *err)
{
    uni_table *table = uni_table_ref(in);
    int64_t rows = uni_table_num_rows(in);
    int status = 0;
    for (int i = 0; i < p->num_columns && status == 0; i++) {
        const uni_value *fill = uni_list_get(uni_dict_get(p->state, p->columns[i]), 0);
        const uni_table_column *column = NULL;
        uni_table_column made = { 0 };
        uni_table *next = NULL;
        status = encodable(p, table, i, &column, err);
        if (status == 0)
            status = is_text(column) ? impute_text(fill, column, rows, &made, err)
                                     : impute_number(fill, column, rows, &made, err);
        if (status == 0)
            status = uni__preprocess_replace(&next, table, p->columns[i], &made, err);
        uni_array_unref(made.values);
        uni_array_unref(made.offsets);
        if (status == 0) {
            uni_table_unref(table);
            table = next;
        }
    }
    if (status < 0)
        uni_table_unref(table);
    else
        *out = table;
    return status;
}

const uni__preprocess_class uni__simple_imputer = { .name = "SimpleImputer",
                                                    .needs_fit = true,
                                                    .begin = count_begin,
                                                    .observe = count_observe,
                                                    .finish = imputer_finish,
                                                    .apply = imputer_apply,
                                                    .free_fitting = count_free };
