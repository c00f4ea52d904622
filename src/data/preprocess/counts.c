/*
 * counts.c - counts the distinct values of columns (counts.h).
 */
#include "data/preprocess/counts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/shared.h"
#include "base/element.h"
#include "data/preprocess/moments.h"

#define MAX_CATEGORIES 10000000

/* The whole value is one token. */
static const uni__tokenizer whole = { .split = UNI__SPLIT_NONE, .ngrams = 1 };

/* ---- values as bytes ---- */

bool uni__is_text(const uni_table_column *column)
{
    return column->field.kind == UNI_FIELD_STRING || column->field.kind == UNI_FIELD_BINARY;
}

static void whole_key(uni__key *key, int64_t number)
{
    key->bytes[0] = 'i';
    memcpy(key->bytes + 1, &number, sizeof number);
}

/* An integral floating-point number has the key of that integer. */
static void real_key(uni__key *key, double number)
{
    if (number >= -0x1p63 && number < 0x1p63 && number == trunc(number)) {
        whole_key(key, (int64_t)number);
        return;
    }
    key->bytes[0] = 'r';
    memcpy(key->bytes + 1, &number, sizeof number);
}

bool uni__key_at(uni__key *key, const uni_table_column *column, int64_t row)
{
    const uint8_t *valid = column->valid != NULL ? uni_array_data(column->valid) : NULL;
    const void *values = uni_array_data(column->values);
    if (valid != NULL && !valid[row])
        return false;
    if (uni__is_text(column)) {
        const int64_t *offsets = uni_array_data(column->offsets);
        key->data = values != NULL ? (const char *)values + offsets[row] : "";
        key->size = (size_t)(offsets[row + 1] - offsets[row]);
        return true;
    }
    key->data = key->bytes;
    key->size = sizeof key->bytes;
    if (column->field.dtype == UNI_I64)
        whole_key(key, ((const int64_t *)values)[row]);
    else if (column->field.dtype == UNI_U64 && ((const uint64_t *)values)[row] <= INT64_MAX)
        whole_key(key, (int64_t)((const uint64_t *)values)[row]);
    else { /* all others are exact as doubles */
        double number = uni__element(values, column->field.dtype, (size_t)row);
        if (isnan(number))
            return false;
        real_key(key, number);
    }
    return true;
}

int uni__countable(const uni_preprocessor *p, const uni_table *table, int index,
                   const uni_table_column **out, uni_error *err)
{
    char text[100];
    UNI_TRY(uni__preprocess_column(p, table, index, false, out, err));
    const uni_field *field = &(*out)->field;
    if (uni__is_text(*out) ||
        (field->kind == UNI_FIELD_NUMBER && field->ndim == 0 && uni__dtype_is_plain(field->dtype)))
        return 0;
    return uni_error_set(err, UNI_EDTYPE, "%s: column \"%s\" is %s, not text or single numbers",
                         p->class_->name, field->name, uni__field_text(text, sizeof text, field));
}

/* ---- fitting ---- */

int uni__fit_counts_begin(uni_preprocessor *p, const uni_table *schema, uni_error *err)
{
    uni__counts *all = calloc((size_t)p->num_columns + 1, sizeof *all);
    p->fitting = all;
    if (all == NULL)
        return uni__preprocess_no_memory(err);
    all[p->num_columns].last = true;
    for (int i = 0; i < p->num_columns; i++) {
        const uni_table_column *column = NULL;
        UNI_TRY(uni__countable(p, schema, i, &column, err));
        all[i].text = uni__is_text(column);
        all[i].real = column->field.dtype == UNI_F32 || column->field.dtype == UNI_F64;
    }
    return 0;
}

static int count_one(const uni_preprocessor *p, uni__counts *counts, int column,
                     const uni__key *key, uni_error *err)
{
    int64_t found = uni__counts_find(counts, key);
    if (found < 0) {
        if (counts->values.count >= MAX_CATEGORIES)
            return uni_error_set(err, UNI_ELIMIT,
                                 "%s: column \"%s\" has more than %d different values",
                                 p->class_->name, p->columns[column], MAX_CATEGORIES);
        if (!counts->text && !counts->real && key->bytes[0] == 'r')
            return uni_error_set(err, UNI_ELIMIT,
                                 "%s: column \"%s\" has a number over %lld; make text of it",
                                 p->class_->name, p->columns[column], (long long)INT64_MAX);
        UNI_TRY(uni__vocabulary_add(&counts->values, &whole, key->data, key->size, err));
        found = (int64_t)counts->values.count - 1;
    }
    counts->values.words[found].count++;
    return 0;
}

int uni__fit_counts_observe(uni_preprocessor *p, const uni_table *table, uni_error *err)
{
    uni__counts *all = p->fitting;
    for (int i = 0; i < p->num_columns; i++) {
        const uni_table_column *column = NULL;
        UNI_TRY(uni__countable(p, table, i, &column, err));
        for (int64_t row = 0; row < uni_table_num_rows(table); row++) {
            uni__key key = { 0 };
            if (uni__key_at(&key, column, row))
                UNI_TRY(count_one(p, &all[i], i, &key, err));
        }
    }
    return 0;
}

void uni__counts_free(void *all)
{
    for (uni__counts *one = all; one != NULL && !one->last; one++)
        uni__vocabulary_clear(&one->values);
    free(all);
}

void uni__fit_counts_free(const uni_preprocessor *p)
{
    uni__counts_free(p->fitting);
}

/* ---- plain values, and back ---- */

/* Exact for integers and floating-point numbers. */
static long double number_of(const uni__word *word)
{
    int64_t integer;
    double real;
    if (word->text[0] == 'i') {
        memcpy(&integer, word->text + 1, sizeof integer);
        return (long double)integer;
    }
    memcpy(&real, word->text + 1, sizeof real);
    return (long double)real;
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
    long double x = number_of(*(const uni__word *const *)a),
                y = number_of(*(const uni__word *const *)b);
    return (x > y) - (x < y);
}

static int by_count(const void *a_, const void *b_)
{
    const uni__word *a = *(const uni__word *const *)a_, *b = *(const uni__word *const *)b_;
    return (b->count > a->count) - (b->count < a->count);
}

uni_value *uni__counts_value(const uni__counts *counts, const uni__word *word)
{
    if (counts->text)
        return uni_value_string_n(word->text, word->size);
    return counts->real ? uni_value_float((double)number_of(word))
                        : uni_value_int((int64_t)number_of(word));
}

uni_value *uni__counts_sorted(const uni__counts *counts, int64_t limit)
{
    size_t count = counts->values.count;
    const uni__word **words = calloc(count + 1, sizeof *words);
    uni_value *list = uni_value_list();
    int (*order)(const void *, const void *) = counts->text ? by_text : by_number;
    int status = words != NULL ? 0 : UNI_ENOMEM;
    for (size_t i = 0; status == 0 && i < count; i++)
        words[i] = &counts->values.words[i];
    if (status == 0) {
        qsort(words, count, sizeof *words, order);
        if (limit > 0 && (size_t)limit < count) {
            qsort(words, count, sizeof *words, by_count);
            count = (size_t)limit;
            qsort(words, count, sizeof *words, order);
        }
    }
    for (size_t i = 0; status == 0 && i < count; i++)
        status = uni_list_take(list, uni__counts_value(counts, words[i]));
    free(words);
    if (status == 0)
        return list;
    uni_value_free(list);
    return NULL;
}

int uni__counts_load(uni__counts *counts, const uni_value *list, uni_error *err)
{
    for (size_t k = 0; k < uni_list_size(list); k++) {
        const uni_value *value = uni_list_get(list, k);
        uni__key key;
        key.data = key.bytes;
        key.size = sizeof key.bytes;
        if (uni_value_type_of(value) == UNI_TYPE_INT)
            whole_key(&key, uni_value_as_int(value, 0));
        else if (uni_value_is_number(value))
            real_key(&key, uni_value_as_float(value, 0));
        else {
            counts->text = true;
            key.data = uni_value_as_bytes(value, &key.size);
        }
        if (key.data == NULL || uni__counts_find(counts, &key) >= 0)
            return uni_error_set(err, UNI_EFORMAT, "a saved value is none, or is there twice");
        UNI_TRY(uni__vocabulary_add(&counts->values, &whole, key.data, key.size, err));
    }
    return 0;
}

int64_t uni__counts_find(const uni__counts *counts, const uni__key *key)
{
    return uni__vocabulary_find(&counts->values, &whole, key->data, key->size);
}
