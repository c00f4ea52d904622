/*
 * resume_test.c - every sample exactly once: random datasets, worker counts, filters and stopping
 * points, over all three orders. The workers are iterators in this process. They stop after the
 * same number of batches; their states are merged and given to another number of workers.
 */
#include <stdlib.h>
#include <string.h>
#include <unisono/data.h>
#include "base/random.h"
#include "data/test.h"
#include "data/plan/plan.h"
#include "data/sources/source.h"
#include "data/table/table.h"

/* ---- a split source and a stream over the numbers 0 to n-1, in blocks of uneven size ---- */

struct numbers {
    int64_t n, block;
};

static int64_t block_begin(const struct numbers *numbers, int64_t block)
{
    int64_t begin = block * numbers->block - (block % 3 == 1 ? numbers->block / 2 : 0);
    return begin < numbers->n ? begin : numbers->n;
}

static int read_numbers(uni__reader *reader, int64_t begin, int64_t end, uni_table **out,
                        uni_error *err)
{
    uni_array *ids = NULL;
    UNI_TRY(uni__reader_array(reader, &ids, UNI_I64, 1, (const int64_t[]){ end - begin }, err));
    for (int64_t i = begin; i < end; i++)
        ((int64_t *)uni_array_data(ids))[i - begin] = i;
    int status = uni_table_new(out, end - begin, err);
    if (status == 0)
        status = uni_table_add_array(*out, "id", ids, err);
    uni_array_unref(ids);
    return status;
}

static int numbers_block(void *self, uni__reader *reader, int64_t block, uni_table **out,
                         uni_error *err)
{
    return read_numbers(reader, block_begin(self, block), block_begin(self, block + 1), out, err);
}

static int numbers_open(void *self, void **cursor, uni_error *err)
{
    *cursor = calloc(1, sizeof(int64_t));
    return *cursor != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory");
}

static int numbers_next(void *self, void *cursor, uni__reader *reader, uni_table **out,
                        uni_error *err)
{
    int64_t *block = cursor;
    if (block_begin(self, *block) >= ((struct numbers *)self)->n)
        return 0;
    UNI_TRY(numbers_block(self, reader, (*block)++, out, err));
    return 1;
}

static void numbers_close(void *self, void *cursor)
{
    free(cursor);
}

static const uni__source_class numbers_class = { .name = "numbers",
                                                 .read_block = numbers_block,
                                                 .stream_open = numbers_open,
                                                 .stream_next = numbers_next,
                                                 .stream_close = numbers_close,
                                                 .free = free };

static uni_dataset *make_numbers(uni__source_kind kind, int64_t n, int64_t block)
{
    uni_dataset *dataset = NULL;
    if (kind == UNI__SOURCE_INDEXED) {
        assert_int_equal(uni_dataset_range(&dataset, n, NULL), 0);
        return dataset;
    }
    struct numbers *numbers = malloc(sizeof *numbers);
    *numbers = (struct numbers){ .n = n, .block = block };
    uni__source source = { .class_ = &numbers_class,
                           .self = numbers,
                           .kind = kind,
                           .num_rows = -1,
                           .num_blocks = (n + block - 1) / block + 1,
                           .bytes = -1,
                           .block_rows = block,
                           .row_bytes = 8 };
    assert_int_equal(uni_table_new(&source.schema, 0, NULL), 0);
    assert_int_equal(uni__table_add_field(
                         source.schema,
                         &(uni_field){ .name = "id", .kind = UNI_FIELD_NUMBER, .dtype = UNI_I64 },
                         NULL),
                     0);
    assert_int_equal(uni__dataset_from_source(&dataset, &source, NULL, NULL), 0);
    return dataset;
}

/* ---- workers ---- */

/* How often each number was seen, per epoch. */
struct seen {
    int64_t n;
    int epochs;
    int *counts;
};

static void note(struct seen *seen, uint64_t epoch, const uni_table *batch)
{
    const int64_t *ids = uni_array_data(uni_table_find(batch, "id")->values);
    assert_true(epoch < (uint64_t)seen->epochs);
    for (int64_t i = 0; i < uni_table_num_rows(batch); i++)
        seen->counts[epoch * (uint64_t)seen->n + (uint64_t)ids[i]]++;
}

/* Each rank takes `steps` batches, or fewer if its part ends. Returns the merged state, or NULL
 * when all ranks are done. */
static uni_value *run_ranks(uni_dataset *dataset, int ranks, int64_t batch, int64_t steps,
                            const uni_value *state, struct seen *seen)
{
    uni_error err = { 0 };
    uni_value *states = uni_value_list(), *merged = NULL;
    bool all_done = true;
    for (int rank = 0; rank < ranks; rank++) {
        uni_dataset_iterator *it = NULL;
        uni_table *table = NULL;
        uni_value *after = NULL;
        int more = 1;
        uni_data_options options = { .batch_size = batch,
                                     .shard = rank,
                                     .num_shards = ranks,
                                     .threads = 2,
                                     .epochs = state != NULL ? 0 : seen->epochs,
                                     .state = state };
        if (uni_dataset_iterate(&it, dataset, &options, &err) < 0)
            fail_msg("%s", err.message);
        for (int64_t i = 0; i < steps && more > 0; i++) {
            uint64_t epoch = uni_dataset_iterator_epoch(it);
            more = uni_dataset_iterator_next_in_epoch(&table, it, &err);
            if (more < 0)
                fail_msg("%s", err.message);
            if (more > 0) {
                note(seen, epoch, table);
                uni_table_unref(table);
            } else if (!uni_dataset_iterator_done(it)) {
                more = 1; /* the end of an epoch counts as a step, since all ranks reach it */
            }
        }
        all_done = all_done && uni_dataset_iterator_done(it);
        assert_int_equal(uni_dataset_iterator_state(&after, it, &err), 0);
        assert_int_equal(uni_list_take(states, after), 0);
        uni_dataset_iterator_free(it);
    }
    if (!all_done && uni_dataset_merge_states(&merged, states, &err) < 0)
        fail_msg("%s", err.message);
    uni_value_free(states);
    return merged;
}

static int drop_thirds(void *context, const uni_table *table, int64_t row, uni_error *err)
{
    return ((const int64_t *)uni_array_data(uni_table_find(table, "id")->values))[row] % 3 != 0;
}

static void check_once(const struct seen *seen, bool filtered, uint64_t seed)
{
    for (int epoch = 0; epoch < seen->epochs; epoch++) {
        for (int64_t id = 0; id < seen->n; id++) {
            int expected = filtered && id % 3 == 0 ? 0 : 1;
            int got = seen->counts[epoch * seen->n + id];
            if (got != expected)
                fail_msg("case %llu: epoch %d, sample %lld of %lld was seen %d times, not %d",
                         (unsigned long long)seed, epoch, (long long)id, (long long)seen->n, got,
                         expected);
        }
    }
}

static void run_case(uint64_t seed, uni__source_kind kind)
{
    uint64_t at = 0;
#define DRAW(limit) ((int64_t)(uni__random_u64(seed, (uint64_t)kind, at++) % (uint64_t)(limit)))
    int64_t n = DRAW(4) == 0 ? DRAW(12) : DRAW(700), block = 1 + DRAW(40), batch = 1 + DRAW(30);
    bool filtered = DRAW(3) == 0, shuffled = DRAW(3) != 0;
    int64_t buffer = DRAW(2) == 0 ? 0 : 1 + DRAW(200);
    struct seen seen = { .n = n, .epochs = 1 + (int)DRAW(3) };
    seen.counts = calloc((size_t)(n * seen.epochs + 1), sizeof *seen.counts);
    uni_dataset *dataset = make_numbers(kind, n, block), *next = NULL;
    if (filtered) {
        assert_int_equal(uni_dataset_filter(&next, dataset, drop_thirds, NULL, NULL), 0);
        uni_dataset_unref(dataset);
        dataset = next;
    }
    if (shuffled) {
        assert_int_equal(uni_dataset_shuffle(&next, dataset, buffer, seed, NULL), 0);
        uni_dataset_unref(dataset);
        dataset = next;
    }
    uni_value *state = NULL;
    for (int attempt = 0; attempt < 1000; attempt++) {
        int ranks = 1 + (int)DRAW(5);
        uni_value *after =
            run_ranks(dataset, ranks, batch, attempt < 6 ? 1 + DRAW(8) : 100000, state, &seen);
        uni_value_free(state);
        state = after;
        if (after == NULL)
            break;
    }
    assert_null(state);
    check_once(&seen, filtered, seed);
    uni_dataset_unref(dataset);
    free(seen.counts);
#undef DRAW
}

static void indexed_once(void **unused)
{
    for (uint64_t seed = 0; seed < 300; seed++)
        run_case(seed, UNI__SOURCE_INDEXED);
}

static void blocks_once(void **unused)
{
    for (uint64_t seed = 0; seed < 300; seed++)
        run_case(seed, UNI__SOURCE_SPLIT);
}

static void streams_once(void **unused)
{
    for (uint64_t seed = 0; seed < 300; seed++)
        run_case(seed, UNI__SOURCE_STREAM);
}

/* The t-th batches of all ranks together are one worker's t-th batch of as many rows, in the same
 * order. */
static void same_batches(void **unused)
{
    uni_dataset *numbers = make_numbers(UNI__SOURCE_INDEXED, 1000, 1), *dataset = NULL;
    assert_int_equal(uni_dataset_shuffle(&dataset, numbers, 0, 7, NULL), 0);
    int64_t orders[3][1000];
    const int workers[3] = { 1, 2, 5 };
    for (int w = 0; w < 3; w++) {
        int64_t size = 100 / workers[w];
        for (int rank = 0; rank < workers[w]; rank++) {
            uni_dataset_iterator *it = NULL;
            uni_table *batch = NULL;
            uni_data_options options = { .batch_size = size,
                                         .shard = rank,
                                         .num_shards = workers[w] };
            assert_int_equal(uni_dataset_iterate(&it, dataset, &options, NULL), 0);
            for (int64_t t = 0; uni_dataset_iterator_next(&batch, it, NULL) > 0; t++) {
                assert_int_equal(uni_table_num_rows(batch), size);
                memcpy(&orders[w][t * 100 + rank * size],
                       uni_array_data(uni_table_find(batch, "id")->values),
                       (size_t)size * sizeof(int64_t));
                uni_table_unref(batch);
            }
            uni_dataset_iterator_free(it);
        }
    }
    assert_memory_equal(orders[0], orders[1], sizeof orders[0]);
    assert_memory_equal(orders[0], orders[2], sizeof orders[0]);
    int64_t moved = 0;
    for (int64_t i = 0; i < 1000; i++)
        moved += orders[0][i] != i;
    assert_true(moved > 900); /* and the rows were shuffled */
    uni_dataset_unref(dataset);
    uni_dataset_unref(numbers);
}

static void foreign_states(void **unused)
{
    uni_dataset *small = make_numbers(UNI__SOURCE_INDEXED, 10, 1);
    uni_dataset_iterator *it = NULL;
    uni_error err = { 0 };
    uni_value *state = NULL;
    assert_int_equal(uni_dataset_iterate(&it, small, NULL, &err), 0);
    assert_int_equal(uni_dataset_iterator_state(&state, it, &err), 0);
    uni_dataset_iterator_free(it);
    uni_dataset *other = make_numbers(UNI__SOURCE_INDEXED, 11, 1);
    assert_int_equal(uni_dataset_iterate(&it, other, &(uni_data_options){ .state = state }, &err),
                     UNI_EMISMATCH);
    assert_non_null(strstr(err.message, "10"));
    uni_value_free(state);
    state = uni_value_dict();
    assert_int_equal(uni_dataset_iterate(&it, other, &(uni_data_options){ .state = state }, &err),
                     UNI_EFORMAT);
    uni_value_free(state);
    uni_dataset_unref(small);
    uni_dataset_unref(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indexed_once),   cmocka_unit_test(blocks_once),
        cmocka_unit_test(streams_once),   cmocka_unit_test(same_batches),
        cmocka_unit_test(foreign_states),
    };
    return cmocka_run_group_tests_name("resume", tests, NULL, NULL);
}
