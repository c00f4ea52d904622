/*
 * tfrecord_walk.h - going through bytes with TFRecords, for byte ranges and streams alike: what is damaged is told or skipped. One thread a walk.
 */
#ifndef UNISONO_DATA_TFRECORD_WALK_H
#define UNISONO_DATA_TFRECORD_WALK_H

#include "data/source.h"

/* Bytes with records, and how far they were walked. */
typedef struct uni__tfrecord_walk {
    const uint8_t *bytes;
    int64_t size; /* of what is there */
    int64_t limit; /* records that begin at or behind this are not ours */
    int64_t at;
    bool whole; /* nothing comes behind `size`: a record that goes on there is cut off */
    bool damaged; /* something was skipped */
    int64_t records; /* at most so many rows; -1: not counted yet */
    const char *path;
    int64_t offset; /* of bytes[0] in the file, for messages */
} uni__tfrecord_walk;

/* 1: a record at walk->at with *length; 0: no more (walk->at is then where the next one begins or would); negative: an error. A record of which
 * not all is there ends the walk, too. */
int uni__tfrecord_next(uni__tfrecord_walk *walk, uni__reader *reader, int64_t *length,
                       uni_error *err) UNI_MUST_USE;
/* All records of the walk as a table; raw: the records as they are. */
int uni__tfrecord_read(uni__tfrecord_walk *walk, bool raw, const uni_table *schema,
                       uni__reader *reader, uni_table **out, uni_error *err) UNI_MUST_USE;

#endif
