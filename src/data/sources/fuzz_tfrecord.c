/*
 * fuzz_tfrecord.c - TFRecord frames and Examples from any bytes: lengths, checksums, finding
 * records, features and their values; and idx headers.
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/fuzz.h"
#include "data/sources/idx.h"
#include "data/sources/tfrecord_example.h"
#include "data/sources/tfrecord_frame.h"

static void read_example(const uint8_t *bytes, size_t size)
{
    uni__example example = uni__example_of(bytes, size);
    uni__feature feature;
    while (uni__example_next(&example, &feature) > 0) {
        size_t length = 0;
        FUZZ_PROMISE(feature.count >= 0 && (size_t)feature.count <= size);
        int64_t *values = malloc(((size_t)feature.count + 1) * sizeof *values);
        if (values == NULL)
            return;
        if (feature.kind == UNI__FEATURE_FLOAT)
            uni__feature_floats(&feature, (float *)values);
        if (feature.kind == UNI__FEATURE_INT)
            uni__feature_ints(&feature, values);
        if (feature.kind == UNI__FEATURE_BYTES)
            FUZZ_PROMISE(uni__feature_bytes(&feature, &length) != NULL && length <= size);
        free(values);
    }
}

static void infer(const uint8_t *bytes, size_t size)
{
    uni_tfrecord_options options = { 0 };
    uni__example_infer *found = uni__example_infer_new();
    uni_table *schema = NULL;
    if (found != NULL && uni__example_infer_add(found, bytes, size, NULL) == 0 &&
        uni__example_infer_schema(found, &options, "fuzz", &schema, NULL) == 0) {
        uni__reader *reader = NULL;
        uni__build build;
        uni__example_order order = { 0 };
        char why[300];
        FUZZ_PROMISE(uni__reader_new(&reader, true, NULL) == 0);
        if (uni__build_begin(&build, reader, schema, 1, (int64_t)size, NULL) == 0) {
            if (uni__example_put(&build, &order, bytes, size, why, sizeof why, NULL) > 0)
                FUZZ_PROMISE(uni__build_end_row(&build, NULL) == 0);
            uni__build_free(&build);
        }
        uni__reader_free(reader);
    }
    uni_table_unref(schema);
    uni__example_infer_free(found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uni__idx_header header;
    int64_t at = uni__tfrecord_find(data, 0, (int64_t)size);
    if (at >= 0) {
        int64_t length = uni__tfrecord_length(data + at);
        FUZZ_PROMISE(length >= 0);
        if (at + length + UNI__TFRECORD_FRAME <= (int64_t)size)
            read_example(data + at + UNI__TFRECORD_HEADER, (size_t)length);
    }
    if (uni__idx_header_read(&header, data, size) == 0)
        FUZZ_PROMISE(header.size <= (int)size && header.row_bytes >= 0 && header.data_bytes >= 0);
    read_example(data, size);
    infer(data, size);
    return 0;
}

size_t fuzz_sample(uint8_t *out, size_t room)
{
    static const uint8_t body[] = { 0x0a, 28,   0x0a, 13, 0x0a, 1,   'a',  0x12, 8,    0x12,
                                    6,    0x0a, 4,    0,  0,    128, 63,   0x0a, 11,   0x0a,
                                    1,    'b',  0x12, 6,  0x1a, 4,   0x0a, 2,    0x96, 1 };
    size_t size = sizeof body;
    if (room < size + UNI__TFRECORD_FRAME)
        return 0;
    memset(out, 0, 8);
    out[0] = (uint8_t)size;
    uint32_t sum = uni__crc32c_masked(out, 8);
    memcpy(out + 8, &sum, 4);
    memcpy(out + 12, body, size);
    sum = uni__crc32c_masked(body, size);
    memcpy(out + 12 + size, &sum, 4);
    return size + UNI__TFRECORD_FRAME;
}
