/*
 * images_test.c - folders of images in an order other than that of the files: every row is the
 * scaled image of its own file, whichever thread decodes it.
 */
#include <unisono/data_readers.h>

#include "base/test.h"
#include "data/test.h"

#define SIDE 8 /* of the files */
#define SCALED 32 /* of the rows */
#define IMAGES 40

/* ---- a PNG of one colour, written from the format's specification ---- */

static uint32_t crc32_of(const uint8_t *bytes, size_t size)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return ~crc;
}

static uint8_t *put32(uint8_t *to, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(number >> (24 - 8 * i));
    return to + 4;
}

static uint8_t *put_chunk(uint8_t *to, const char *name, const uint8_t *body, size_t size)
{
    uint8_t *begin = put32(to, (uint32_t)size);
    memcpy(begin, name, 4);
    if (size > 0)
        memcpy(begin + 4, body, size);
    return put32(begin + 4 + size, crc32_of(begin, size + 4));
}

/* Grey, SIDE by SIDE, deflate without compression. */
static size_t make_png(uint8_t *out, uint8_t grey)
{
    enum { RAW = SIDE * (SIDE + 1) };
    static const uint8_t signature[] = { 0x89, 'P', 'N', 'G', 13, 10, 26, 10 };
    static const uint8_t header[] = { 0, 0, 0, SIDE, 0, 0, 0, SIDE, 8, 0, 0, 0, 0 };
    uint8_t body[RAW + 11] = { 0x78, 1, 1, RAW, 0, (uint8_t)~RAW, 0xff };
    uint32_t a = 1, b = 0;
    for (int i = 0; i < RAW; i++) {
        body[7 + i] = i % (SIDE + 1) == 0 ? 0 : grey;
        a = (a + body[7 + i]) % 65521;
        b = (b + a) % 65521;
    }
    put32(body + 7 + RAW, b << 16 | a);
    memcpy(out, signature, sizeof signature);
    uint8_t *to = put_chunk(out + sizeof signature, "IHDR", header, sizeof header);
    to = put_chunk(to, "IDAT", body, sizeof body);
    return (size_t)(put_chunk(to, "IEND", NULL, 0) - out);
}

/* The image of file number i has grey level 5 * i + 1. */
static uni_dataset *folder_of_images(const char *dir, bool rescale)
{
    uint8_t png[512];
    uni_dataset *dataset = NULL;
    for (int i = 0; i < IMAGES; i++) {
        char name[32];
        snprintf(name, sizeof name, "%03d.png", i);
        free(test_file(dir, name, png, make_png(png, (uint8_t)(5 * i + 1))));
    }
    assert_ok(uni_dataset_read_images(
        &dataset, 1, (const char *const[]){ dir },
        &(uni_image_options){
            .height = SCALED, .width = SCALED, .include_paths = true, .rescale = rescale },
        &failure));
    return dataset;
}

static double pixel(const uni_table *table, int64_t row, int at, bool rescale)
{
    const void *data = uni_array_data(uni_table_find(table, "image")->values);
    int64_t place = row * SCALED * SCALED + at;
    return rescale ? (double)((const float *)data)[place] * 255 : ((const uint8_t *)data)[place];
}

static int number_of(const uni_table *table, int64_t row)
{
    const uni_table_column *paths = uni_table_find(table, "path");
    const int64_t *offsets = uni_array_data(paths->offsets);
    const char *text = uni_array_data(paths->values);
    return atoi(text + offsets[row + 1] - strlen("000.png"));
}

/* Reads one epoch of one shard and checks that each image matches its file; counts the images. */
static void check_epoch(uni_dataset *dataset, int shard, int shards, bool rescale, int *seen)
{
    uni_dataset_iterator *it = NULL;
    uni_table *batch = NULL;
    assert_ok(uni_dataset_iterate(
        &it, dataset, &(uni_data_options){ .batch_size = 7, .shard = shard, .num_shards = shards },
        &failure));
    int more;
    while ((more = uni_dataset_iterator_next(&batch, it, &failure)) > 0) {
        for (int64_t row = 0; row < uni_table_num_rows(batch); row++) {
            int number = number_of(batch, row);
            seen[number]++;
            for (int at = 0; at < SCALED * SCALED; at += 31)
                assert_true((int)(pixel(batch, row, at, rescale) + 0.5) == 5 * number + 1);
        }
        uni_table_unref(batch);
    }
    assert_ok(more);
    uni_dataset_iterator_free(it);
}

static void check_order(bool shuffle, int shards, bool rescale)
{
    char *dir = test_dir();
    uni_dataset *rows = folder_of_images(dir, rescale), *dataset = uni_dataset_ref(rows);
    int seen[IMAGES] = { 0 };
    if (shuffle) {
        uni_dataset_unref(dataset);
        assert_ok(uni_dataset_shuffle(&dataset, rows, 0, 3, &failure));
    }
    for (int shard = 0; shard < shards; shard++)
        check_epoch(dataset, shard, shards, rescale, seen);
    for (int i = 0; i < IMAGES; i++)
        assert_int_equal(seen[i], 1);
    uni_dataset_unref(dataset);
    uni_dataset_unref(rows);
    test_dir_remove(dir);
}

static void in_turn(void **state)
{
    check_order(false, 1, false);
}

static void shuffled(void **state)
{
    check_order(true, 1, false);
    check_order(true, 1, true);
}

static void sharded(void **state)
{
    check_order(false, 3, false);
    check_order(true, 3, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_turn),
        cmocka_unit_test(shuffled),
        cmocka_unit_test(sharded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
