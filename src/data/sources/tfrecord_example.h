/* tfrecord_example.h - tf.train.Examples as rows: infers the columns from the first ones, and
 * parses an Example into its columns. For tfrecord.c. */
#ifndef UNISONO_DATA_TFRECORD_EXAMPLE_H
#define UNISONO_DATA_TFRECORD_EXAMPLE_H

#include <unisono/data_readers.h>

#include "data/sources/build.h"

typedef struct uni__example_infer uni__example_infer;

uni__example_infer *uni__example_infer_new(void); /* NULL: out of memory */
/* Adds one record; UNI_EFORMAT if it is not an Example. */
int uni__example_infer_add(uni__example_infer *infer, const void *record, size_t size,
                           uni_error *err) UNI_MUST_USE;
/* The columns, sorted by name, because the order in a record means nothing. */
int uni__example_infer_schema(const uni__example_infer *infer, const uni_tfrecord_options *options,
                              const char *path, uni_table **schema, uni_error *err) UNI_MUST_USE;
void uni__example_infer_free(uni__example_infer *infer);

/* The column of each feature of the previous record, by position: the records of a file usually
 * name their features in the same order. Zero it before each table. The names point into that
 * record, whose bytes must stay valid. */
enum { UNI__EXAMPLE_SEEN = 64 };
typedef struct uni__example_order {
    struct {
        const char *name;
        size_t size;
        int column; /* -1: none */
    } seen[UNI__EXAMPLE_SEEN];
} uni__example_order;

/* Stores one record's features in the row. Returns 1; 0 if the record is bad, and `why` (at least
 * 200 bytes) says how; or an error. */
int uni__example_put(uni__build *build, uni__example_order *order, const void *record, size_t size,
                     char *why, size_t why_size, uni_error *err) UNI_MUST_USE;

#endif
