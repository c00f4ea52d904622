/*
 * files.h - models as files, for src/nn/files only: which variable of a model has which name in a
 * Keras weight file, the child process that reads and writes HDF5 and zip, and the plug-in it uses
 * (src/nn/keras/plugin.h).
 */
#ifndef UNISONO_NN_FILES_H
#define UNISONO_NN_FILES_H

#include "base/text.h"
#include "nn/keras/plugin.h"
#include "nn/layer.h"

/* ---- order.c ---- */

/* model.layers as Keras has it; the caller frees the list. */
int uni__keras_order(const uni_model *model, uni_layer ***out, size_t *count,
                     uni_error *err) UNI_MUST_USE;

/* ---- plan.c: the variables of a model under Keras's names ---- */

enum uni__variable_kind {
    UNI__VARIABLE_PARAMETER, /* float32 numbers in place */
    UNI__VARIABLE_COUNT, /* Normalization's count: a float here, int64 in the file */
    UNI__VARIABLE_IDF, /* of a TextVectorization: read only by uni__text_set_idf */
    UNI__VARIABLE_ITERATION,
    UNI__VARIABLE_RATE,
    UNI__VARIABLE_SLOT
};

typedef struct uni__variable {
    enum uni__variable_kind kind;
    char *path; /* "layers/dense_1/vars/0" */
    uni_layer *layer; /* NULL: the optimizer's */
    const uni_parameter *parameter; /* NULL for numbers that are none */
    const char *what; /* the parameter's name, or "iteration" ... */
    int ndim;
    int64_t shape[UNI_MAX_DIMS];
    size_t count;
    float *data; /* NULL for iteration, rate */
} uni__variable;

typedef struct uni__file_plan_group {
    uni__h5_group group; /* with the name that Keras gives it as an attribute */
    uni_layer *layer; /* NULL: the model's or the optimizer's */
} uni__file_plan_group;

typedef struct uni__file_plan {
    size_t num_groups, num_variables, groups_room, variables_room;
    uni__file_plan_group *groups;
    uni__variable *variables;
} uni__file_plan;

/* with_optimizer: its variables, too (the slots only when the optimizer has them). */
int uni__file_plan_make(uni__file_plan *plan, const uni_model *model, bool with_optimizer,
                        uni_error *err) UNI_MUST_USE;
void uni__file_plan_free(uni__file_plan *plan);

/* ---- child.c ---- */

/* Runs job in a child process with limits and collects what it writes to the descriptor. The child
 * cannot open files, write to any or start others; a crash, a timeout or more than `limit` bytes
 * are errors that `what` begins. */
typedef int (*uni__child_job)(void *context, int fd, uni_error *err);
int uni__child_run(uni__child_job job, void *context, const char *what, size_t memory, size_t limit,
                   uni__text *reply, uni_error *err) UNI_MUST_USE;

/* ---- plugin.c ---- */

int uni__keras_plugin_load(const uni__keras_plugin **out, uni_error *err) UNI_MUST_USE;

/* ---- contents.c: what the child read ---- */

typedef struct uni__item {
    enum uni__item_kind kind;
    uni_dtype dtype;
    int ndim;
    int64_t shape[UNI_MAX_DIMS];
    const char *path; /* zero-terminated */
    const void *data; /* not aligned */
    size_t size;
    bool used;
} uni__item;

typedef struct uni__contents {
    uni__text bytes;
    uni__item *items; /* sorted by kind and path */
    size_t count;
} uni__contents;

/* archive: a .keras file, otherwise .weights.h5. */
int uni__contents_read(uni__contents *contents, const char *path, bool archive,
                       uni_error *err) UNI_MUST_USE;
/* The same from what a child sent, in contents->bytes. */
int uni__contents_list(uni__contents *contents, uni_error *err) UNI_MUST_USE;
uni__item *uni__contents_find(const uni__contents *contents, enum uni__item_kind kind,
                              const char *path); /* NULL: none */
void uni__contents_free(uni__contents *contents);

/* ---- fill.c: contents into a model ---- */

/* whole: the file must have the optimizer's state as the model has it (.keras); otherwise a state
 * that does not fit is left out with a warning, as Keras does. */
int uni__fill_model(uni_model *model, uni__contents *contents, const char *path, bool whole,
                    uni_error *err) UNI_MUST_USE;
/* Vocabularies from the archive's assets. */
int uni__fill_assets(uni_model *model, const uni__contents *contents, uni_error *err) UNI_MUST_USE;

#endif
