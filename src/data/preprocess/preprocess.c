/*
 * preprocess.c - creates, fits, applies, saves and loads preprocessors of any kind
 * (unisono/preprocess.h).
 */
#include "data/preprocess/preprocess.h"

#include <stdlib.h>
#include <string.h>

#include "data/shared.h"
#include "data/table/table.h"

#define FIT_ROWS 4096
#define SAVE_VERSION 1

static const uni__preprocess_class *const kinds[] = {
    &uni__standard_scaler, &uni__min_max_scaler,  &uni__max_abs_scaler, &uni__normalizer,
    &uni__simple_imputer,  &uni__ordinal_encoder, &uni__label_encoder,  &uni__one_hot_encoder,
    &uni__concatenator,    &uni__tokenizer_class,
};

int uni__preprocess_no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory for a preprocessor");
}

/* ---- columns ---- */

int uni__preprocess_column(const uni_preprocessor *p, const uni_table *table, int index,
                           bool number, const uni_table_column **out, uni_error *err)
{
    char text[100];
    *out = uni_table_find(table, p->columns[index]);
    if (*out == NULL) {
        int status = uni__no_such_column(table, p->columns[index], err);
        uni_error_prefix(err, "%s", p->class_->name);
        return status;
    }
    if (number && (*out)->field.kind != UNI_FIELD_NUMBER)
        return uni_error_set(err, UNI_EDTYPE, "%s: column \"%s\" is %s, not numbers",
                             p->class_->name, p->columns[index],
                             uni__field_text(text, sizeof text, &(*out)->field));
    return 0;
}

/* Replaces the column of the same name, or appends the new one. */
static int put_column(uni_table **table, const uni_table_column *made, uni_error *err)
{
    uni_table *out = NULL;
    bool there = false;
    int status = uni_table_new(&out, uni_table_num_rows(*table), err);
    for (int i = 0; i < uni_table_num_columns(*table) && status == 0; i++) {
        const uni_table_column *column = uni_table_column_at(*table, i);
        bool same = strcmp(column->field.name, made->field.name) == 0;
        there = there || same;
        status = uni_table_add(out, same ? made : column, err);
    }
    if (status == 0 && !there)
        status = uni_table_add(out, made, err);
    uni_table_unref(status == 0 ? *table : out);
    if (status == 0)
        *table = out;
    return status;
}

int uni__preprocess_each(const uni_preprocessor *p, uni_table *in, uni__preprocess_one make,
                         const void *context, uni_table **out, uni_error *err)
{
    uni_table *table = uni_table_ref(in);
    int status = 0;
    for (int i = 0; i < p->num_columns && status == 0; i++) {
        uni_table_column made = { 0 };
        if (strcmp(p->outputs[i], p->columns[i]) != 0 && uni_table_find(in, p->outputs[i]) != NULL)
            status = uni_error_set(err, UNI_EEXISTS,
                                   "%s: there is a column \"%s\" already; take another name "
                                   "(output_columns)",
                                   p->class_->name, p->outputs[i]);
        if (status == 0)
            status = make(p, i, in, context, &made, err);
        made.field.name = p->outputs[i];
        if (status == 0)
            status = put_column(&table, &made, err);
        uni_array_unref(made.values);
        uni_array_unref(made.offsets);
        uni_array_unref(made.valid);
    }
    if (status < 0)
        uni_table_unref(table);
    else
        *out = table;
    return status;
}

/* ---- constructors ---- */

uni_preprocessor *uni__preprocessor_ref(uni_preprocessor *p)
{
    atomic_fetch_add(&p->references, 1);
    return p;
}

void uni_preprocessor_unref(uni_preprocessor *p)
{
    if (p == NULL || atomic_fetch_sub(&p->references, 1) != 1)
        return;
    if (p->class_->free_fitting != NULL)
        p->class_->free_fitting(p);
    if (p->class_->free_ready != NULL)
        p->class_->free_ready(p->ready);
    uni_value_free(p->options);
    uni_value_free(p->state);
    free(p->columns);
    free(p->outputs);
    free(p);
}

/* Reads a list of distinct names. */
static int read_names(const uni_preprocessor *p, const uni_value *list, const char **names,
                      uni_error *err)
{
    for (int i = 0; i < p->num_columns; i++) {
        names[i] = uni_value_as_string(uni_list_get(list, (size_t)i), NULL);
        if (names[i] == NULL)
            return uni_error_set(err, UNI_EINVAL, "%s: columns are names", p->class_->name);
        for (int k = 0; k < i; k++)
            if (strcmp(names[k], names[i]) == 0)
                return uni_error_set(err, UNI_EINVAL, "%s: column \"%s\" is given twice",
                                     p->class_->name, names[i]);
    }
    return 0;
}

static int read_columns(uni_preprocessor *p, uni_error *err)
{
    const uni_value *list = uni_dict_get(p->options, "columns");
    const uni_value *outputs = uni_dict_get(p->options, "output_columns");
    const char *label = uni_dict_get_string(p->options, "label_column", NULL);
    size_t count = label != NULL ? 1 : uni_list_size(list);
    if (count == 0)
        return uni_error_set(err, UNI_EINVAL, "%s needs a list of columns", p->class_->name);
    p->columns = calloc(count, sizeof *p->columns);
    p->outputs = calloc(count, sizeof *p->outputs);
    if (p->columns == NULL || p->outputs == NULL)
        return uni__preprocess_no_memory(err);
    p->num_columns = (int)count;
    if (label != NULL)
        p->columns[0] = label;
    else
        UNI_TRY(read_names(p, list, p->columns, err));
    if (uni_value_type_of(outputs) == UNI_TYPE_NULL) {
        memcpy(p->outputs, p->columns, count * sizeof *p->columns);
        return 0;
    }
    if (uni_list_size(outputs) != count)
        return uni_error_set(err, UNI_EINVAL,
                             "%s: %zu output_columns for %zu columns; it must be as many",
                             p->class_->name, uni_list_size(outputs), count);
    return read_names(p, outputs, p->outputs, err);
}

/* An unknown option is an error. */
static int check_options(const uni_preprocessor *p, uni_error *err)
{
    for (size_t i = 0; i < uni_dict_size(p->options); i++) {
        const char *key = uni_dict_key_at(p->options, i);
        const char *at = strstr(p->class_->options, key);
        bool known =
            at != NULL && at[strlen(key)] == ' ' && (at == p->class_->options || at[-1] == ' ');
        if (!known)
            return uni_error_set(err, UNI_EINVAL, "%s has no option \"%s\"; it has %s",
                                 p->class_->name, key, p->class_->options);
    }
    return p->class_->check != NULL ? p->class_->check(p, err) : 0;
}

int uni_preprocessor_new(uni_preprocessor **out, const char *kind, const uni_value *options,
                         uni_error *err)
{
    const uni__preprocess_class *class_ = NULL;
    *out = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i]->name, kind) == 0)
            class_ = kinds[i];
    if (class_ == NULL)
        return uni_error_set(err, UNI_ENOTFOUND, "there is no preprocessor \"%s\"", kind);
    uni_preprocessor *p = calloc(1, sizeof *p);
    if (p == NULL)
        return uni__preprocess_no_memory(err);
    atomic_init(&p->references, 1);
    p->class_ = class_;
    p->options = options != NULL ? uni_value_copy(options) : uni_value_dict();
    int status = p->options != NULL ? read_columns(p, err) : uni__preprocess_no_memory(err);
    if (status == 0)
        status = check_options(p, err);
    if (status == 0 && !class_->needs_fit) {
        p->state = uni_value_dict();
        status = p->state == NULL          ? uni__preprocess_no_memory(err)
                 : class_->prepare != NULL ? class_->prepare(p, err)
                                           : 0;
    }
    if (status < 0) {
        uni_preprocessor_unref(p);
        return status;
    }
    *out = p;
    return 0;
}

/* ---- fitting ---- */

static int observe_all(uni_preprocessor *p, uni_dataset *dataset, uni_error *err)
{
    const uni_table *schema = NULL;
    uni_dataset_iterator *it = NULL;
    uni_table *table = NULL;
    int more = 0, status = 0;
    int64_t rows = 0;
    UNI_TRY(uni_dataset_schema(&schema, dataset, err));
    UNI_TRY(p->class_->begin(p, schema, err));
    UNI_TRY(uni_dataset_iterate(&it, dataset,
                                &(uni_data_options){ .batch_size = FIT_ROWS, .epochs = 1 }, err));
    while (status == 0 && (more = uni_dataset_iterator_next(&table, it, err)) > 0) {
        status = p->class_->observe(p, table, err);
        rows += uni_table_num_rows(table);
        uni_table_unref(table);
    }
    uni_dataset_iterator_free(it);
    if (status < 0 || more < 0)
        return status < 0 ? status : more;
    if (rows == 0)
        return uni_error_set(err, UNI_EINVAL, "%s: the dataset has no rows to be fitted to",
                             p->class_->name);
    return p->class_->finish(p, err);
}

int uni_preprocessor_fit(uni_preprocessor *p, uni_dataset *dataset, uni_error *err)
{
    if (!p->class_->needs_fit)
        return 0;
    if (atomic_load(&p->references) > 1)
        return uni_error_set(err, UNI_ESTATE,
                             "this %s is part of a dataset already; make another one to fit it "
                             "again",
                             p->class_->name);
    uni_value_free(p->state);
    p->state = NULL;
    if (p->class_->free_ready != NULL)
        p->class_->free_ready(p->ready);
    p->ready = NULL;
    int status = observe_all(p, dataset, err);
    if (p->class_->free_fitting != NULL)
        p->class_->free_fitting(p);
    p->fitting = NULL;
    if (status == 0 && p->class_->prepare != NULL)
        status = p->class_->prepare(p, err);
    if (status < 0) {
        uni_value_free(p->state);
        p->state = NULL;
    }
    return status;
}

/* ---- applying ---- */

int uni__preprocessor_apply(uni_table **out, uni_preprocessor *p, uni_table *in, uni_error *err)
{
    *out = NULL;
    if (p->state == NULL)
        return uni_error_set(err, UNI_ESTATE, "this %s was not fitted: call fit first",
                             p->class_->name);
    return p->class_->apply(p, in, out, err);
}

static int apply_stage(void *context, uni_table *in, uni_table **out, uni_error *err)
{
    return uni__preprocessor_apply(out, context, in, err);
}

static void free_stage(void *context)
{
    uni_preprocessor_unref(context);
}

int uni_preprocessor_transform(uni_dataset **out, uni_preprocessor *p, uni_dataset *from,
                               uni_error *err)
{
    *out = NULL;
    if (p->state == NULL)
        return uni_error_set(err, UNI_ESTATE, "this %s was not fitted: call fit first",
                             p->class_->name);
    return uni_dataset_map_batches(out, from,
                                   &(uni_map_options){ .function = apply_stage,
                                                       .context = uni__preprocessor_ref(p),
                                                       .free_context = free_stage,
                                                       .name = p->class_->name },
                                   err);
}

/* ---- saving ---- */

int uni_preprocessor_save(uni_value **out, const uni_preprocessor *p, uni_error *err)
{
    uni_value *saved = uni_value_dict();
    *out = NULL;
    if (saved == NULL || uni_dict_take(saved, "kind", uni_value_string(p->class_->name)) < 0 ||
        uni_dict_take(saved, "version", uni_value_int(SAVE_VERSION)) < 0 ||
        uni_dict_take(saved, "options", uni_value_copy(p->options)) < 0 ||
        uni_dict_take(saved, "state",
                      p->state != NULL ? uni_value_copy(p->state) : uni_value_null()) < 0) {
        uni_value_free(saved);
        return uni__preprocess_no_memory(err);
    }
    *out = saved;
    return 0;
}

int uni_preprocessor_load(uni_preprocessor **out, const uni_value *saved, uni_error *err)
{
    const char *kind = uni_dict_get_string(saved, "kind", NULL);
    int64_t version = uni_dict_get_int(saved, "version", 0);
    const uni_value *state = uni_dict_get(saved, "state");
    *out = NULL;
    if (kind == NULL || version < 1)
        return uni_error_set(err, UNI_EFORMAT, "not a saved preprocessor");
    if (version > SAVE_VERSION)
        return uni_error_set(err, UNI_EVERSION,
                             "the preprocessor was saved by a newer version (format %lld)",
                             (long long)version);
    UNI_TRY(uni_preprocessor_new(out, kind, uni_dict_get(saved, "options"), err));
    if (!(*out)->class_->needs_fit || uni_value_type_of(state) != UNI_TYPE_DICT)
        return 0;
    (*out)->state = uni_value_copy(state);
    int status = (*out)->state == NULL             ? uni__preprocess_no_memory(err)
                 : (*out)->class_->prepare != NULL ? (*out)->class_->prepare(*out, err)
                                                   : 0;
    if (status < 0) {
        uni_preprocessor_unref(*out);
        *out = NULL;
    }
    return status;
}
