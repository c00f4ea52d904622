/*
 * preprocess.h - shared by all kinds of preprocessors. For src/data/preprocess only.
 *
 * A fitted preprocessor is its `state`, a dictionary of plain values; this is what gets saved.
 * `prepare` builds `ready` from it after a fit and after a load, so that both give the same
 * numbers.
 */
#ifndef UNISONO_DATA_PREPROCESS_H
#define UNISONO_DATA_PREPROCESS_H

#include <stdatomic.h>
#include <unisono/preprocess.h>

typedef struct uni__preprocess_class {
    const char *name;
    const char *options; /* option names, each followed by a space */
    bool needs_fit;
    /* Checks the values of the options; NULL: nothing to check. */
    int (*check)(const uni_preprocessor *p, uni_error *err);
    /* Fit calls begin, then observe for each table, then finish, which writes p->state. */
    int (*begin)(uni_preprocessor *p, const uni_table *schema, uni_error *err);
    int (*observe)(uni_preprocessor *p, const uni_table *table, uni_error *err);
    int (*finish)(uni_preprocessor *p, uni_error *err);
    /* Builds p->ready from p->state; NULL: nothing to build. */
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
    const char **columns, **outputs; /* from the options; outputs: usually the column itself */
    void *fitting, *ready;
};

extern const uni__preprocess_class uni__standard_scaler, uni__min_max_scaler, uni__max_abs_scaler,
    uni__normalizer, uni__simple_imputer, uni__ordinal_encoder, uni__label_encoder,
    uni__one_hot_encoder, uni__concatenator, uni__tokenizer_class;

int uni__preprocess_no_memory(uni_error *err);

/* Finds the column; the error lists the existing ones. number: it must be numeric. */
int uni__preprocess_column(const uni_preprocessor *p, const uni_table *table, int index,
                           bool number, const uni_table_column **out, uni_error *err) UNI_MUST_USE;

/* Computes column number `index`: fills *out except for the name. context: from
 * uni__preprocess_each. */
typedef int (*uni__preprocess_one)(const uni_preprocessor *p, int index, const uni_table *in,
                                   const void *context, uni_table_column *out, uni_error *err);
/* Returns a table like `in` with every column replaced by the result of `make`. A column with a
 * different output name is appended instead. */
int uni__preprocess_each(const uni_preprocessor *p, uni_table *in, uni__preprocess_one make,
                         const void *context, uni_table **out, uni_error *err) UNI_MUST_USE;

/* scale.c: fits the moments of all columns; p->fitting is an array of uni__moments. */
int uni__fit_moments_begin(uni_preprocessor *p, const uni_table *schema,
                           uni_error *err) UNI_MUST_USE;
int uni__fit_moments_observe(uni_preprocessor *p, const uni_table *table,
                             uni_error *err) UNI_MUST_USE;
void uni__fit_moments_free(const uni_preprocessor *p);

#endif
