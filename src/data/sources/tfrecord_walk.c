/*
 * tfrecord_walk.c - walks from record to record (tfrecord_walk.h), and turns the records of a walk
 * into a table.
 */
#include "data/sources/tfrecord_walk.h"

#include <string.h>

#include "data/sources/tfrecord_example.h"
#include "data/sources/tfrecord_frame.h"

int uni__tfrecord_next(uni__tfrecord_walk *walk, uni__reader *reader, int64_t *length,
                       uni_error *err)
{
    while (walk->at < walk->limit) {
        int64_t left = walk->size - walk->at;
        *length = left >= UNI__TFRECORD_HEADER ? uni__tfrecord_length(walk->bytes + walk->at) : 0;
        if (*length >= 0 && left >= *length + UNI__TFRECORD_FRAME)
            return 1;
        if (*length >= 0 && !walk->whole)
            return 0;
        long long where = (long long)(walk->offset + walk->at);
        walk->damaged = true;
        if (*length < 0) {
            UNI_TRY(uni__reader_bad(reader, err, walk->path, 0, 0,
                                    "the record at byte %lld has a damaged length (its CRC does "
                                    "not fit)",
                                    where));
            int64_t next = uni__tfrecord_find(walk->bytes, walk->at + 1, walk->size);
            walk->at = next >= 0 ? next : walk->size;
        } else {
            UNI_TRY(uni__reader_bad(reader, err, walk->path, 0, 0,
                                    "the file ends in the middle of the record at byte %lld",
                                    where));
            walk->at = walk->size;
        }
    }
    return 0;
}

static int put_record(uni__build *build, bool raw, uni__example_order *order,
                      const uni__tfrecord_walk *walk, int64_t length, uni_error *err)
{
    const uint8_t *data = walk->bytes + walk->at + UNI__TFRECORD_HEADER;
    char why[300];
    int good = 1;
    if (!uni__tfrecord_data_good(data, length)) {
        good = 0;
        strcpy(why, "the bytes are damaged (their CRC does not fit)");
    } else if (raw) {
        UNI_TRY(uni__build_put_bytes(build, 0, data, (size_t)length, err));
    } else {
        good = uni__example_put(build, order, data, (size_t)length, why, sizeof why, err);
    }
    if (good < 0)
        return good;
    if (good > 0)
        return uni__build_end_row(build, err);
    uni__build_drop_row(build);
    return uni__reader_bad(build->reader, err, walk->path, 0, 0, "the record at byte %lld: %s",
                           (long long)(walk->offset + walk->at), why);
}

/* Upper bound of the number of records from walk->at on. */
static int64_t count_records(const uni__tfrecord_walk *walk)
{
    int64_t count = 0, at = walk->at;
    while (at < walk->limit && walk->size - at >= UNI__TFRECORD_HEADER) {
        int64_t length = uni__tfrecord_length(walk->bytes + at);
        int64_t next = length < 0 ? uni__tfrecord_find(walk->bytes, at + 1, walk->size)
                                  : at + length + UNI__TFRECORD_FRAME;
        count += length >= 0;
        at = next >= 0 ? next : walk->size;
    }
    return count;
}

int uni__tfrecord_read(uni__tfrecord_walk *walk, bool raw, const uni_table *schema,
                       uni__reader *reader, uni_table **out, uni_error *err)
{
    uni__example_order order = { 0 };
    int64_t count = walk->records >= 0 ? walk->records : count_records(walk), length = 0;
    int more = 0, status = 0;
    uni__build build;
    UNI_TRY(uni__build_begin(&build, reader, schema, count, walk->size - walk->at, err));
    while ((more = uni__tfrecord_next(walk, reader, &length, err)) > 0) {
        UNI_TRY_GOTO(put_record(&build, raw, &order, walk, length, err), fail);
        walk->at += length + UNI__TFRECORD_FRAME;
    }
    status = more;
    if (status < 0)
        goto fail;
    return uni__build_finish(&build, out, err);
fail:
    uni__build_free(&build);
    return status;
}
