/*
 * preprocess.h - what the kinds of preprocessors share. For src/data/preprocess only.
 *
 * A fitted preprocessor is its `state`, a dictionary of plain values: what is saved. `ready` is made of it (prepare) after a fit and after a load, so that
 * both give the same numbers.
 */
#ifndef UNISONO_DATA_PREPROCESS_H
#define UNISONO_DATA_PREPROCESS_H

#include <stdatomic.h>
#include <unisono/preprocess.h>

typedef struct uni__preprocess_class {
    const char *name;
    bool needs_fit;
    /* fit: begin, observe each table, finish writes p->state. */
    int (*begin)(uni_preprocessor *p, const uni_table *schema, uni_error *err);
    int (*observe)(uni_preprocessor *p, const uni_table *table, uni_error *err);
    int (*finish)(uni_preprocessor *p, uni_error *err);
    /* p->ready from p->state; NULL: nothing to make. */
    int (*prepare)(uni_preprocessor *p, uni_error *err);
    int (*apply)(const uni_preprocessor *p, uni_table *in, uni_table **out, uni_error *err);
    void (*free_fitting)(void *fitting);
    void (*free_ready)(void *ready);
} uni__preprocess_class;

struct uni_preprocessor {
    atomic_int references;
    const uni__preprocess_class *class_;
    uni_value *options;
    uni_value *state; /* NULL: not fitted */
    int num_columns;
    const char **columns; /* of options */
    void *fitting, *ready;
};

extern const uni__preprocess_class uni__standard_scaler, uni__min_max_scaler, uni__max_abs_scaler,
    uni__normalizer, uni__simple_imputer, uni__ordinal_encoder, uni__label_encoder,
    uni__one_hot_encoder, uni__concatenator, uni__tokenizer_class;

/* The column, or an error that names what there is. number: it must be numbers. */
int uni__preprocess_column(const uni_preprocessor *p, const uni_table *table, int index,
                           bool number, const uni_table_column **out, uni_error *err) UNI_MUST_USE;
/* A table like `in` with column `name` replaced (NULL replacement: left out). Adds it at the end when it is not there. */
int uni__preprocess_replace(uni_table **out, const uni_table *in, const char *name,
                            const uni_table_column *replacement, uni_error *err) UNI_MUST_USE;
/* Elements of one row of a column of numbers. */
int64_t uni__preprocess_width(const uni_field *field);

#endif
