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
    const char *options; /* names of its own, with a space behind each */
    bool needs_fit;
    /* Whether the options have values that there are; NULL: nothing to check. */
    int (*check)(const uni_preprocessor *p, uni_error *err);
    /* fit: begin, observe each table, finish writes p->state. */
    int (*begin)(uni_preprocessor *p, const uni_table *schema, uni_error *err);
    int (*observe)(uni_preprocessor *p, const uni_table *table, uni_error *err);
    int (*finish)(uni_preprocessor *p, uni_error *err);
    /* p->ready from p->state; NULL: nothing to make. */
    int (*prepare)(uni_preprocessor *p, uni_error *err);
    int (*apply)(const uni_preprocessor *p, uni_table *in, uni_table **out, uni_error *err);
    void (*free_fitting)(const uni_preprocessor *p);
    void (*free_ready)(void *ready);
} uni__preprocess_class;

struct uni_preprocessor {
    atomic_int references;
    const uni__preprocess_class *class_;
    uni_value *options;
    uni_value *state; /* NULL: not fitted */
    int num_columns;
    const char **columns, **outputs; /* of options; where a column's result goes, mostly itself */
    void *fitting, *ready;
};

extern const uni__preprocess_class uni__standard_scaler, uni__min_max_scaler, uni__max_abs_scaler,
    uni__normalizer, uni__simple_imputer, uni__ordinal_encoder, uni__label_encoder,
    uni__one_hot_encoder, uni__concatenator, uni__tokenizer_class;

int uni__preprocess_no_memory(uni_error *err);

/* The column, or an error that names what there is. number: it must be numbers. */
int uni__preprocess_column(const uni_preprocessor *p, const uni_table *table, int index,
                           bool number, const uni_table_column **out, uni_error *err) UNI_MUST_USE;

/* What a kind makes of its column number `index`: fills *out, but for the name. context: what uni__preprocess_each was given. */
typedef int (*uni__preprocess_one)(const uni_preprocessor *p, int index, const uni_table *in,
                                   const void *context, uni_table_column *out, uni_error *err);
/* A table like `in` with what `make` makes of every column in the place of the column, or, where another output was asked for, behind all. */
int uni__preprocess_each(const uni_preprocessor *p, uni_table *in, uni__preprocess_one make,
                         const void *context, uni_table **out, uni_error *err) UNI_MUST_USE;

/* Fitting by moments of all columns (scale.c): p->fitting is an array of uni__moments. */
int uni__fit_moments_begin(uni_preprocessor *p, const uni_table *schema,
                           uni_error *err) UNI_MUST_USE;
int uni__fit_moments_observe(uni_preprocessor *p, const uni_table *table,
                             uni_error *err) UNI_MUST_USE;
void uni__fit_moments_free(const uni_preprocessor *p);

#endif
