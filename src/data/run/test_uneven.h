/* test_uneven.h - a source whose blocks differ widely in length, some empty, in files of a few
 * blocks each; and helpers that count its rows. For the tests of this module only. */
#ifndef UNISONO_DATA_TEST_UNEVEN_H
#define UNISONO_DATA_TEST_UNEVEN_H

#include "base/random.h"
#include "data/plan/dataset.h"
#include "data/table/table.h"
#include "data/test.h"

enum { BLOCKS_A_FILE = 3 };

struct uneven {
    int64_t num_blocks;
    uint64_t seed;
    char names[64][16];
};

static inline int64_t first_of(const struct uneven *self, int64_t block)
{
    int64_t first = 0;
    for (int64_t i = 0; i < block; i++)
        first += (int64_t)(uni__random_u64(self->seed, 1, (uint64_t)i) % 60) *
                 (uni__random_u64(self->seed, 2, (uint64_t)i) % 4 > 0);
    return first;
}

static inline int uneven_block(void *self_, uni__reader *reader, int64_t block, uni_table **out,
                               uni_error *err)
{
    const struct uneven *self = self_;
    int64_t begin = first_of(self, block), rows = first_of(self, block + 1) - begin;
    return test_ids_table(out, begin, rows, err);
}

static inline void uneven_place(void *self_, int64_t index, uni__place *out)
{
    struct uneven *self = self_;
    *out = (uni__place){ .file = self->names[index / BLOCKS_A_FILE],
                         .begin = index % BLOCKS_A_FILE,
                         .end = index % BLOCKS_A_FILE + 1,
                         .rows = -1 };
}

static const uni__source_class uneven_class = {
    .name = "uneven", .read_block = uneven_block, .place = uneven_place, .free = free
};

static inline uni_dataset *make_uneven(int64_t num_blocks, uint64_t seed, int64_t *rows)
{
    struct uneven *self = calloc(1, sizeof *self);
    uni_dataset *dataset = NULL;
    *self = (struct uneven){ .num_blocks = num_blocks, .seed = seed };
    for (int i = 0; i < 64; i++)
        snprintf(self->names[i], sizeof self->names[i], "file_%02d", i);
    *rows = first_of(self, num_blocks);
    uni__source source = { .class_ = &uneven_class,
                           .self = self,
                           .kind = UNI__SOURCE_SPLIT,
                           .num_rows = -1,
                           .num_blocks = num_blocks,
                           .bytes = -1,
                           .block_rows = 20,
                           .row_bytes = 8 };
    uni_field id = { .name = "id", .kind = UNI_FIELD_NUMBER, .dtype = UNI_I64 };
    assert_ok(uni_table_new(&source.schema, 0, &failure));
    assert_ok(uni__table_add_field(source.schema, &id, &failure));
    assert_ok(uni__dataset_from_source(&dataset, &source, NULL, &failure));
    return dataset;
}

/* Replaces *dataset by `next`. */
static inline void replace(uni_dataset **dataset, uni_dataset *next)
{
    uni_dataset_unref(*dataset);
    *dataset = next;
}

static inline void shuffle(uni_dataset **dataset, int64_t buffer)
{
    uni_dataset *next = NULL;
    assert_ok(uni_dataset_shuffle(&next, *dataset, buffer, 9, &failure));
    replace(dataset, next);
}

/* Counts the ids of a batch; returns its row count. */
static inline int64_t note(int *seen, uni_table *batch)
{
    int64_t rows = uni_table_num_rows(batch);
    const int64_t *ids = uni_array_data(uni_table_find(batch, "id")->values);
    for (int64_t i = 0; i < rows; i++)
        seen[ids[i]]++;
    uni_table_unref(batch);
    return rows;
}

/* Takes an epoch, or at most `most` batches of it; returns the number of batches. */
static inline int64_t take_epoch(uni_dataset_iterator *it, int64_t most, int *seen)
{
    int64_t batches = 0;
    uni_table *batch = NULL;
    int more = 1;
    while (batches < most &&
           (more = uni_dataset_iterator_next_in_epoch(&batch, it, &failure)) > 0) {
        (void)note(seen, batch);
        batches++;
    }
    if (more < 0)
        fail_msg("%s", failure.message);
    return batches;
}

static inline int drop_thirds(void *context, const uni_table *table, int64_t row, uni_error *err)
{
    return ((const int64_t *)uni_array_data(uni_table_find(table, "id")->values))[row] % 3 != 0;
}

#endif
