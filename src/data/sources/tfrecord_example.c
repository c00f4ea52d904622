/*
 * tfrecord_example.c - Examples as rows (tfrecord_example.h). One thread per object.
 */
#include "data/sources/tfrecord_example.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/shared.h"
#include "base/text.h"
#include "data/sources/tfrecord_frame.h"

#define MAX_FEATURES 10000

struct seen {
    char *name;
    uni__feature_kind kind;
    bool mixed; /* of several kinds */
    bool varying;
    int64_t count; /* -1: only empty ones so far */
};

struct uni__example_infer {
    struct seen *items;
    size_t count;
};

uni__example_infer *uni__example_infer_new(void)
{
    return calloc(1, sizeof(uni__example_infer));
}

void uni__example_infer_free(uni__example_infer *infer)
{
    if (infer == NULL)
        return;
    for (size_t i = 0; i < infer->count; i++)
        free(infer->items[i].name);
    free(infer->items);
    free(infer);
}

static struct seen *find(uni__example_infer *infer, const uni__feature *feature)
{
    for (size_t i = 0; i < infer->count; i++)
        if (strncmp(infer->items[i].name, feature->name, feature->name_size) == 0 &&
            infer->items[i].name[feature->name_size] == '\0')
            return &infer->items[i];
    struct seen *items = reallocarray(infer->items, infer->count + 1, sizeof *items);
    if (items == NULL)
        return NULL;
    infer->items = items;
    items[infer->count] =
        (struct seen){ .name = strndup(feature->name, feature->name_size), .count = -1 };
    return items[infer->count].name != NULL ? &items[infer->count++] : NULL;
}

int uni__example_infer_add(uni__example_infer *infer, const void *record, size_t size,
                           uni_error *err)
{
    uni__example example = uni__example_of(record, size);
    uni__feature feature;
    int more;
    while ((more = uni__example_next(&example, &feature)) > 0) {
        if (memchr(feature.name, '\0', feature.name_size) != NULL ||
            !uni__utf8_valid(feature.name, feature.name_size))
            return uni_error_set(err, UNI_EFORMAT, "a feature whose name is not text");
        struct seen *seen = find(infer, &feature);
        if (seen == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the features");
        if (infer->count > MAX_FEATURES)
            return uni_error_set(err, UNI_ELIMIT, "more than %d features", MAX_FEATURES);
        if (feature.kind == UNI__FEATURE_NONE)
            continue;
        seen->mixed |= seen->kind != UNI__FEATURE_NONE && seen->kind != feature.kind;
        seen->kind = feature.kind;
        seen->varying |= seen->count >= 0 && seen->count != feature.count;
        seen->count = feature.count;
    }
    return more < 0 ? uni_error_set(err, UNI_EFORMAT,
                                    "a record that is not a tf.train.Example (option raw reads "
                                    "records as they are)")
                    : 0;
}

static int field_of(const struct seen *seen, const char *path, uni_field *field, uni_error *err)
{
    *field = (uni_field){ .name = seen->name, .kind = UNI_FIELD_NUMBER };
    if (seen->mixed)
        return uni_error_set(err, UNI_EFORMAT,
                             "%s: the feature \"%s\" has values of different types; leave it out "
                             "(columns)",
                             path, seen->name);
    if (seen->kind == UNI__FEATURE_BYTES || seen->kind == UNI__FEATURE_NONE) {
        field->kind = UNI_FIELD_BINARY;
        field->dtype = UNI_U8;
        if (seen->varying || seen->count > 1)
            return uni_error_set(err, UNI_EUNSUPPORTED,
                                 "%s: the feature \"%s\" has several values of bytes a row, which "
                                 "a column cannot; leave it out (columns) or read the records raw",
                                 path, seen->name);
        return 0;
    }
    field->dtype = seen->kind == UNI__FEATURE_FLOAT ? UNI_F32 : UNI_I64;
    if (seen->varying || seen->count <= 0) {
        field->kind = UNI_FIELD_LIST;
    } else if (seen->count > 1) {
        field->ndim = 1;
        field->shape[0] = seen->count;
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const uni_field *)a)->name, ((const uni_field *)b)->name);
}

static const uni_field *given(const uni_tfrecord_options *options, const char *name)
{
    for (int i = 0; i < options->num_types; i++)
        if (strcmp(options->types[i].name, name) == 0)
            return &options->types[i];
    return NULL;
}

static int find_field(const uni__example_infer *infer, const uni_tfrecord_options *options,
                      const char *name, const char *path, uni_field *field, uni_error *err)
{
    const uni_field *type = given(options, name);
    if (type != NULL) {
        *field = *type;
        return 0;
    }
    for (size_t i = 0; i < infer->count; i++)
        if (strcmp(infer->items[i].name, name) == 0)
            return field_of(&infer->items[i], path, field, err);
    return uni_error_set(err, UNI_ENOTFOUND, "no feature \"%s\" in the first records of %s", name,
                         path);
}

int uni__example_infer_schema(const uni__example_infer *infer, const uni_tfrecord_options *options,
                              const char *path, uni_table **schema, uni_error *err)
{
    size_t chosen = 0;
    int count = 0, status = 0;
    while (options->columns != NULL && options->columns[chosen] != NULL)
        chosen++;
    uni_field *fields =
        calloc(infer->count + chosen + (size_t)options->num_types + 1, sizeof *fields);
    if (fields == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the columns of %s", path);
    for (size_t i = 0; i < (options->columns != NULL ? chosen : infer->count); i++) {
        const char *name = options->columns != NULL ? options->columns[i] : infer->items[i].name;
        UNI_TRY_GOTO(find_field(infer, options, name, path, &fields[count++], err), done);
    }
    if (options->columns == NULL)
        qsort(fields, (size_t)count, sizeof *fields, by_name);
    status = uni__build_schema(schema, fields, count, err);
done:
    free(fields);
    return status;
}

/* ---- a row ---- */

static const char *kind_name(uni__feature_kind kind)
{
    return kind == UNI__FEATURE_BYTES ? "bytes" : kind == UNI__FEATURE_FLOAT ? "float" : "int64";
}

static int bad(char *why, size_t size, const uni__feature *feature, const uni_field *field)
{
    int length = feature->name_size < 80 ? (int)feature->name_size : 80;
    char expected[100];
    uni__field_text(expected, sizeof expected, field);
    snprintf(why, size, "the feature \"%.*s\" has %lld values of %s, the column has %s", length,
             feature->name, (long long)feature->count, kind_name(feature->kind), expected);
    return 0;
}

/* Copies the values directly if they have the column's dtype, otherwise converts one by one. */
static int put_numbers(uni__build *build, int column, const uni__feature *feature, void *to,
                       char *why, size_t why_size, uni_error *err)
{
    uni_dtype dtype = build->columns[column].field.dtype;
    bool floats = feature->kind == UNI__FEATURE_FLOAT;
    if (floats && dtype == UNI_F32) {
        uni__feature_floats(feature, to);
        return 1;
    }
    if (!floats && dtype == UNI_I64) {
        uni__feature_ints(feature, to);
        return 1;
    }
    size_t size = floats ? sizeof(float) : sizeof(int64_t);
    void *values = uni__reader_scratch(build->reader, UNI__SCRATCH_EXAMPLE_VALUES,
                                       (size_t)feature->count * size + 1);
    if (values == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the values of a feature");
    if (floats)
        uni__feature_floats(feature, values);
    else
        uni__feature_ints(feature, values);
    bool fits = true;
    for (int64_t i = 0; i < feature->count && fits; i++)
        fits = floats ? uni__build_put_float(build, column, i, (double)((float *)values)[i])
                      : uni__build_put_int(build, column, i, ((int64_t *)values)[i]);
    if (fits)
        return 1;
    snprintf(why, why_size, "the feature \"%.80s\" has a value that no %s has (types)",
             build->columns[column].field.name, uni_dtype_name(dtype));
    return 0;
}

static int put_feature(uni__build *build, int column, const uni__feature *feature, char *why,
                       size_t why_size, uni_error *err)
{
    uni__build_column *c = &build->columns[column];
    bool numbers = feature->kind == UNI__FEATURE_FLOAT || feature->kind == UNI__FEATURE_INT;
    /* The value is missing. */
    if (feature->kind == UNI__FEATURE_NONE ||
        (feature->count == 0 && c->row_elements > 0 && c->field.kind != UNI_FIELD_LIST))
        return 1;
    if (c->put) {
        snprintf(why, why_size, "a feature that is there twice");
        return 0;
    }
    if (c->field.kind == UNI_FIELD_STRING || c->field.kind == UNI_FIELD_BINARY) {
        size_t size = 0;
        if (numbers || feature->count != 1)
            return bad(why, why_size, feature, &c->field);
        const uint8_t *bytes = uni__feature_bytes(feature, &size);
        if (c->field.kind == UNI_FIELD_STRING && !uni__utf8_valid((const char *)bytes, size)) {
            snprintf(why, why_size, "the feature of the column \"%.80s\" is not UTF-8 text",
                     c->field.name);
            return 0;
        }
        UNI_TRY(uni__build_put_bytes(build, column, bytes, size, err));
        return 1;
    }
    if (!numbers)
        return bad(why, why_size, feature, &c->field);
    if (c->field.kind == UNI_FIELD_NUMBER)
        return feature->count == c->row_elements
                   ? put_numbers(build, column, feature, uni__build_row(build, column), why,
                                 why_size, err)
                   : bad(why, why_size, feature, &c->field);
    void *to = NULL;
    if (c->field.dtype != (feature->kind == UNI__FEATURE_FLOAT ? UNI_F32 : UNI_I64))
        return bad(why, why_size, feature, &c->field);
    UNI_TRY(uni__build_reserve(build, column, feature->count, &to, err));
    uni__build_used(build, column, feature->count);
    return put_numbers(build, column, feature, to, why, why_size, err);
}

/* The column of the record's feature number `place`. */
static int column_of(const uni__build *build, uni__example_order *order, int place,
                     const uni__feature *feature)
{
    if (place >= UNI__EXAMPLE_SEEN)
        return uni__build_find(build, feature->name, feature->name_size);
    if (order->seen[place].name == NULL || order->seen[place].size != feature->name_size ||
        memcmp(order->seen[place].name, feature->name, feature->name_size) != 0)
        order->seen[place].column = uni__build_find(build, feature->name, feature->name_size);
    order->seen[place].name = feature->name;
    order->seen[place].size = feature->name_size;
    return order->seen[place].column;
}

int uni__example_put(uni__build *build, uni__example_order *order, const void *record, size_t size,
                     char *why, size_t why_size, uni_error *err)
{
    uni__example example = uni__example_of(record, size);
    uni__feature feature;
    int more;
    for (int place = 0; (more = uni__example_next(&example, &feature)) > 0; place++) {
        int column = column_of(build, order, place, &feature);
        int good = column < 0 ? 1 : put_feature(build, column, &feature, why, why_size, err);
        if (good <= 0)
            return good;
    }
    if (more < 0)
        snprintf(why, why_size, "a record that is not a tf.train.Example");
    return more == 0;
}
