/* tfrecord_example.h - tf.train.Examples as rows: which columns the first ones have, and one of them into its columns. For tfrecord.c. */
#ifndef UNISONO_DATA_TFRECORD_EXAMPLE_H
#define UNISONO_DATA_TFRECORD_EXAMPLE_H

#include <unisono/data_readers.h>

#include "data/sources/build.h"

typedef struct uni__example_infer uni__example_infer;

uni__example_infer *uni__example_infer_new(void); /* NULL: no memory */
/* One record; UNI_EFORMAT when it is no Example. */
int uni__example_infer_add(uni__example_infer *infer, const void *record, size_t size,
                           uni_error *err) UNI_MUST_USE;
/* The columns, sorted by name (the order in a record means nothing). */
int uni__example_infer_schema(const uni__example_infer *infer, const uni_tfrecord_options *options,
                              const char *path, uni_table **schema, uni_error *err) UNI_MUST_USE;
void uni__example_infer_free(uni__example_infer *infer);

/* Which column each feature of the record before went to, by its place: records of a file name their features in the same order. Zeroed at
 * the beginning of a table; the names are those of that record, whose bytes must stay. */
enum { UNI__EXAMPLE_SEEN = 64 };
typedef struct uni__example_order {
    struct {
        const char *name;
        size_t size;
        int column; /* -1: none */
    } seen[UNI__EXAMPLE_SEEN];
} uni__example_order;

/* Puts one record's features into the row. 1: good, 0: bad, and `why` (at least 200 bytes) says how; negative: an error. */
int uni__example_put(uni__build *build, uni__example_order *order, const void *record, size_t size,
                     char *why, size_t why_size, uni_error *err) UNI_MUST_USE;

#endif
