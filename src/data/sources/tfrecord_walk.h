/*
 * tfrecord_walk.h - walks through bytes with TFRecords, for byte ranges and streams alike. Corrupt
 * data is reported or skipped. One thread per walk.
 */
#ifndef UNISONO_DATA_TFRECORD_WALK_H
#define UNISONO_DATA_TFRECORD_WALK_H

#include "data/sources/source.h"

/* Bytes with records, and the current position. */
typedef struct uni__tfrecord_walk {
    const uint8_t *bytes;
    int64_t size; /* bytes available */
    int64_t limit; /* records that begin at or after this belong to another block */
    int64_t at;
    bool whole; /* nothing follows `size`: a record that continues there is truncated */
    bool damaged; /* something was skipped */
    int64_t records; /* upper bound of the rows; -1: not counted yet */
    const char *path;
    int64_t offset; /* file offset of bytes[0], for messages */
} uni__tfrecord_walk;

/* Returns 1 with *length for a record at walk->at; 0 at the end, where walk->at is where the next
 * record begins or would; or an error. An incomplete record also ends the walk. */
int uni__tfrecord_next(uni__tfrecord_walk *walk, uni__reader *reader, int64_t *length,
                       uni_error *err) UNI_MUST_USE;
/* Reads all records of the walk as a table; raw: the records as they are. */
int uni__tfrecord_read(uni__tfrecord_walk *walk, bool raw, const uni_table *schema,
                       uni__reader *reader, uni_table **out, uni_error *err) UNI_MUST_USE;

#endif
