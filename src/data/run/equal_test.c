/*
 * equal_test.c - what ranks that synchronize at every batch rely on: equal batch counts and every
 * row once, also after several restarts with other numbers of ranks, for every kind of source; and
 * the position of each part in the global batch.
 */
#include "data/shared.h"
#include "data/run/test_uneven.h"

/* The iterator of one of `ranks` ranks that get as many batches as the others. */
static uni_dataset_iterator *open_rank(uni_dataset *dataset, int rank, int ranks,
                                       uni_data_options options)
{
    uni_dataset_iterator *it = NULL;
    options.shard = rank;
    options.num_shards = ranks;
    options.equal = true;
    options.threads = 2;
    assert_ok(uni_dataset_iterate(&it, dataset, &options, &failure));
    return it;
}

/* Ends an iterator and appends its state to the list. */
static void close_with_state(uni_dataset_iterator *it, uni_value *states)
{
    uni_value *one = NULL;
    assert_ok(uni_dataset_iterator_state(&one, it, &failure));
    assert_int_equal(uni_list_take(states, one), 0);
    uni_dataset_iterator_free(it);
}

/* ---- batches may be empty ---- */

/* Runs all ranks for two epochs: equal batch counts, and every row once per epoch, or at most once
 * if the remainder is dropped. */
static void check_equal(uni_dataset *dataset, int64_t rows, int ranks, bool filtered, bool drop,
                        int64_t global_batch)
{
    int *seen = calloc((size_t)rows + 1, sizeof *seen);
    int64_t batches[2] = { -1, -1 };
    for (int rank = 0; rank < ranks; rank++) {
        uni_dataset_iterator *it = open_rank(dataset, rank, ranks,
                                             (uni_data_options){ .batch_size = 16,
                                                                 .global_batch_size = global_batch,
                                                                 .drop_remainder = drop,
                                                                 .epochs = 2 });
        for (int epoch = 0; epoch < 2; epoch++) {
            int64_t mine = take_epoch(it, INT64_MAX, seen);
            batches[epoch] = rank == 0 ? mine : batches[epoch];
            assert_int_equal(mine, batches[epoch]);
        }
        assert_true(uni_dataset_iterator_done(it));
        uni_dataset_iterator_free(it);
    }
    for (int64_t id = 0; id < rows; id++) {
        int expected = filtered && id % 3 == 0 ? 0 : 2;
        assert_true(drop ? seen[id] <= expected : seen[id] == expected);
    }
    free(seen);
}

static void all_ranks_get_as_many_batches(void **state)
{
    static const int ranks[] = { 2, 3, 7 };
    for (uint64_t seed = 0; seed < 12; seed++)
        for (int r = 0; r < 3; r++) {
            int64_t rows = 0;
            bool filtered = seed % 3 == 2;
            uni_dataset *dataset = make_uneven(seed == 0 ? 2 : 5 + (int64_t)seed * 3, seed, &rows);
            if (seed % 2 == 1)
                shuffle(&dataset, 0);
            if (filtered) {
                uni_dataset *next = NULL;
                assert_ok(uni_dataset_filter(&next, dataset, drop_thirds, NULL, &failure));
                replace(&dataset, next);
            }
            check_equal(dataset, rows, ranks[r], filtered, false, 0);
            check_equal(dataset, rows, ranks[r], filtered, true, 0);
            /* Also with uneven batches. */
            check_equal(dataset, rows, ranks[r], filtered, false, 23);
            uni_dataset_unref(dataset);
        }
}

/* Three ranks stop in the middle of an epoch; two or five continue. Batch counts stay equal, and
 * every row comes once. */
static void equal_after_a_resume(void **state)
{
    for (uint64_t seed = 1; seed < 10; seed++) {
        int64_t rows = 0, first = -1;
        uni_dataset *dataset = make_uneven(30, seed, &rows);
        shuffle(&dataset, seed % 2 == 0 ? 0 : 50);
        int *seen = calloc((size_t)rows + 1, sizeof *seen), ranks = seed % 3 == 0 ? 5 : 2;
        uni_value *states = uni_value_list(), *merged = NULL;
        uni_dataset_iterator *it = NULL;
        for (int rank = 0; rank < 3; rank++) {
            it = open_rank(dataset, rank, 3, (uni_data_options){ .batch_size = 16 });
            (void)take_epoch(it, (int64_t)seed, seen);
            close_with_state(it, states);
        }
        assert_ok(uni_dataset_merge_states(&merged, states, &failure));
        for (int rank = 0; rank < ranks; rank++) {
            it = open_rank(dataset, rank, ranks,
                           (uni_data_options){ .batch_size = 16, .state = merged });
            int64_t mine = take_epoch(it, INT64_MAX, seen);
            first = rank == 0 ? mine : first;
            assert_int_equal(mine, first);
            uni_dataset_iterator_free(it);
        }
        for (int64_t id = 0; id < rows; id++)
            assert_int_equal(seen[id], 1);
        uni_value_free(states);
        uni_value_free(merged);
        uni_dataset_unref(dataset);
        free(seen);
    }
}

static int open_ids(void *context, void **cursor, uni_error *err)
{
    *cursor = calloc(1, sizeof(int));
    return *cursor != NULL ? 0 : UNI_ENOMEM;
}

static int next_ids(void *context, void *cursor, uni_table **out, uni_error *err)
{
    if ((*(int *)cursor)++ > 0)
        return 0;
    *out = ids_table(0, *(const int64_t *)context);
    return 1;
}

static void close_ids(void *context, void *cursor)
{
    free(cursor);
}

/* Even without `equal`, the last rows are shared evenly and all ranks stop at the same batch. */
static void shards_of_streams_stay_together(void **state)
{
    int64_t rows = 23;
    uni_dataset *stream = NULL;
    uni_source_functions source = { .context = &rows, .open = open_ids, .next = next_ids };
    source.close = close_ids;
    assert_ok(uni_dataset_from_functions(&stream, &source, &failure));
    for (int whole = 0; whole < 2; whole++) {
        int seen[23] = { 0 }, last[3] = { 0 };
        for (int rank = 0; rank < 3; rank++) {
            uni_dataset_iterator *it = NULL;
            uni_table *batch = NULL;
            uni_data_options options = {
                .batch_size = 4, .shard = rank, .num_shards = 3, .drop_remainder = whole
            };
            assert_ok(uni_dataset_iterate(&it, stream, &options, &failure));
            for (int i = 0; i < 2 - whole; i++) {
                assert_int_equal(uni_dataset_iterator_next_in_epoch(&batch, it, &failure), 1);
                last[rank] = (int)note(seen, batch);
            }
            assert_int_equal(uni_dataset_iterator_next_in_epoch(&batch, it, &failure), 0);
            uni_dataset_iterator_free(it);
        }
        for (int id = 0; id < (whole ? 12 : 23); id++)
            assert_int_equal(seen[id], 1);
        for (int rank = 0; rank < 3; rank++)
            assert_in_range(last[rank], whole ? 4 : 3, 4);
    }
    uni_dataset_unref(stream);
}

static void equal_says_what_it_cannot(void **state)
{
    int64_t rows = 0;
    uni_dataset *range = NULL, *some = make_uneven(13, 5, &rows), *part = NULL;
    uni_dataset_iterator *it = NULL;
    assert_ok(uni_dataset_range(&range, 100, &failure));
    assert_ok(uni_dataset_shard_files(&part, some, 0, 2, &failure));
    assert_fails(uni_dataset_iterate(
                     &it, part, &(uni_data_options){ .equal = true, .no_empty = true }, &failure),
                 UNI_EUNSUPPORTED, "drop_remainder");
    assert_fails(uni_dataset_iterate(&it, range,
                                     &(uni_data_options){ .num_shards = 7, .global_batch_size = 3 },
                                     &failure),
                 UNI_EINVAL, "at least one");
    uni_dataset_unref(part);
    uni_dataset_unref(some);
    uni_dataset_unref(range);
}

/* ---- no empty batches ---- */

static int same(void *context, uni_table *in, uni_table **out, uni_error *err)
{
    *out = uni_table_ref(in);
    return 0;
}

static int next_numbers(void *context, void *cursor, uni_table **out, uni_error *err)
{
    int64_t *at = cursor, rows = *(int64_t *)context, left = rows - *at;
    int64_t count = left < 37 ? left : 37;
    uni_array *ids = NULL;
    if (count <= 0)
        return 0;
    UNI_TRY(uni_array_new(&ids, UNI_I64, 1, &count, err));
    for (int64_t i = 0; i < count; i++)
        ((int64_t *)uni_array_data(ids))[i] = (*at)++;
    UNI_TRY(uni_table_new(out, count, err));
    UNI_TRY(uni_table_add_array(*out, "id", ids, err));
    uni_array_unref(ids);
    return 1;
}

static int open_numbers(void *context, void **cursor, uni_error *err)
{
    *cursor = calloc(1, sizeof(int64_t));
    return 0;
}

static void close_numbers(void *context, void *cursor)
{
    free(cursor);
}

enum { KINDS = 10 /* 3: seven blocks */ };

/* The numbers 0 to rows - 1 from every kind of source; *filtered: every third is left out. */
static uni_dataset *make_kind(int kind, uint64_t seed, int64_t *rows, bool *filtered)
{
    uni_dataset *dataset = NULL, *next = NULL;
    *filtered = kind == 2 || kind == 6 || kind == 9;
    if (kind < 3) {
        *rows = 100 + (int64_t)seed * 13;
        assert_ok(uni_dataset_range(&dataset, *rows, &failure));
    } else if (kind < 8) {
        dataset = make_uneven(kind == 3 ? 7 : 20, seed, rows);
    } else {
        int64_t *count = malloc(sizeof *count);
        *rows = *count = 100 + (int64_t)seed * 13;
        uni_source_functions callbacks = { .name = "numbers",
                                           .context = count,
                                           .open = open_numbers,
                                           .next = next_numbers,
                                           .close = close_numbers,
                                           .free = free };
        assert_ok(uni_dataset_from_functions(&dataset, &callbacks, &failure));
    }
    if (*filtered) {
        assert_ok(uni_dataset_filter(&next, dataset, drop_thirds, NULL, &failure));
        replace(&dataset, next);
    }
    if (kind == 7) {
        uni_map_options options = { .function = same, .in_order = true };
        assert_ok(uni_dataset_map_batches(&next, dataset, &options, &failure));
        replace(&dataset, next);
    }
    if (kind == 1 || kind == 4 || kind == 9)
        shuffle(&dataset, 0);
    if (kind == 5)
        shuffle(&dataset, 50);
    return dataset;
}

static int expected_of(int64_t id, bool filtered)
{
    return filtered && id % 3 == 0 ? 0 : 1;
}

static int64_t rows_in_all(int64_t rows, bool filtered)
{
    return filtered ? rows - (rows + 2) / 3 : rows;
}

static void no_batch_is_empty(void **state)
{
    static const int ranks[] = { 2, 3, 5 };
    static const int64_t sizes[] = { 1, 3, 16, 200 };
    for (int turn = 0; turn < KINDS * 3 * 4; turn++) {
        int64_t rows = 0, size = sizes[turn % 4], batches = -1;
        int count = ranks[turn / 4 % 3];
        bool filtered = false;
        uni_dataset *dataset = make_kind(turn / 12, 1 + (uint64_t)turn % 5, &rows, &filtered);
        int *seen = calloc((size_t)rows + 1, sizeof *seen);
        for (int rank = 0; rank < count; rank++) {
            uni_dataset_iterator *it = NULL;
            it = open_rank(dataset, rank, count,
                           (uni_data_options){ .batch_size = size, .no_empty = true, .epochs = 2 });
            int64_t mine = 0;
            uni_table *batch = NULL;
            while (uni_dataset_iterator_next(&batch, it, &failure) > 0) {
                int64_t first = 0, global = 0, given = note(seen, batch);
                uni__dataset_iterator_place(it, &first, &global);
                assert_true(given > 0 && given <= size + 1);
                assert_true(global >= count && first + given <= global);
                mine++;
            }
            assert_true(uni_dataset_iterator_done(it));
            batches = rank == 0 ? mine : batches;
            assert_int_equal(mine, batches);
            uni_dataset_iterator_free(it);
        }
        bool enough = rows_in_all(rows, filtered) >= count;
        for (int64_t id = 0; id < rows; id++)
            assert_int_equal(seen[id], enough ? 2 * expected_of(id, filtered) : 0);
        free(seen);
        uni_dataset_unref(dataset);
    }
}

static void whole_batches_only(void **state)
{
    for (int kind = 0; kind < KINDS; kind++) {
        int64_t rows = 0;
        bool filtered = false;
        uni_dataset *dataset = make_kind(kind, 3, &rows, &filtered);
        int *seen = calloc((size_t)rows + 1, sizeof *seen);
        for (int rank = 0; rank < 3; rank++) {
            uni_dataset_iterator *it = NULL;
            uni_table *batch = NULL;
            it = open_rank(
                dataset, rank, 3,
                (uni_data_options){ .batch_size = 8, .no_empty = true, .drop_remainder = true });
            int64_t mine = 0;
            for (; uni_dataset_iterator_next(&batch, it, &failure) > 0; mine++)
                assert_int_equal(note(seen, batch), 8);
            assert_int_equal(mine, rows_in_all(rows, filtered) / 24);
            uni_dataset_iterator_free(it);
        }
        for (int64_t id = 0; id < rows; id++)
            assert_true(seen[id] <= expected_of(id, filtered));
        free(seen);
        uni_dataset_unref(dataset);
    }
}

/* ---- restarts ---- */

/* All ranks take `steps` batches. Returns the state of rank `speaker`, which equals that of every
 * rank, or NULL if the epoch is over. */
static uni_value *run_ranks(uni_dataset *dataset, int ranks, int speaker, int64_t size,
                            int64_t steps, bool no_empty, const uni_value *state, int *seen)
{
    uni_value *said = NULL;
    int64_t taken = -1;
    bool over = false;
    for (int rank = 0; rank < ranks; rank++) {
        uni_value *one = NULL;
        uni_dataset_iterator *it = open_rank(
            dataset, rank, ranks,
            (uni_data_options){ .batch_size = size, .no_empty = no_empty, .state = state });
        int64_t mine = take_epoch(it, steps, seen);
        taken = rank == 0 ? mine : taken;
        assert_int_equal(mine, taken);
        over = mine < steps;
        assert_ok(uni_dataset_iterator_state(&one, it, &failure));
        assert_true(uni_list_size(uni_dict_get(one, "pieces")) <= 60); /* a few integers */
        if (said != NULL && ranks > 1)
            assert_true(uni_value_equal(said, one));
        if (said == NULL || rank == speaker) {
            uni_value_free(said);
            said = one;
        } else {
            uni_value_free(one);
        }
        uni_dataset_iterator_free(it);
    }
    if (over) {
        uni_value_free(said);
        return NULL;
    }
    return said;
}

/* Groups of different sizes follow each other, and each stops in the middle of the epoch. Only the
 * first rank's state is passed on. */
static void other_numbers_go_on(void **state)
{
    for (int turn = 0; turn < KINDS * 12; turn++) {
        int64_t rows = 0, left = 0;
        bool filtered = false, no_empty = turn % 3 > 0;
        uni_dataset *dataset = make_kind(turn % KINDS, 1 + (uint64_t)turn, &rows, &filtered);
        int *seen = calloc((size_t)rows + 1, sizeof *seen), ranks = 1;
        uni_value *said = NULL;
        for (uint64_t group = 0;; group++) {
            uint64_t chance = uni__random_u64((uint64_t)turn, 3, group);
            ranks = group == 0 && turn % 2 == 0 ? 2 : group == 1 ? 3 : 1 + (int)(chance % 5);
            int64_t steps = group < 8 ? 1 + (int64_t)(chance >> 8 & 7) : INT64_MAX;
            uni_value *next =
                run_ranks(dataset, ranks, (int)(chance >> 16) % ranks,
                          1 + (int64_t)(chance >> 32) % 7, steps, no_empty, said, seen);
            uni_value_free(said);
            said = next;
            if (said == NULL)
                break;
        }
        for (int64_t id = 0; id < rows; id++) {
            assert_in_range(seen[id], 0, expected_of(id, filtered));
            left += expected_of(id, filtered) - seen[id];
        }
        assert_true(left < (no_empty ? ranks : 1)); /* fewer than there were ranks */
        free(seen);
        uni_dataset_unref(dataset);
    }
}

/* The first group runs without `equal`, the second with it: the states are compatible. */
static void with_and_without(void **state)
{
    for (uint64_t seed = 1; seed < 30; seed++) {
        int64_t rows = 0;
        uni_dataset *dataset = make_uneven(25, seed, &rows);
        int *seen = calloc((size_t)rows + 1, sizeof *seen);
        uni_value *states = uni_value_list(), *merged = NULL, *said = NULL;
        uni_dataset_iterator *it = NULL;
        if (seed % 3 > 0)
            shuffle(&dataset, seed % 3 == 1 ? 0 : 70);
        for (int rank = 0; rank < 2; rank++) {
            uni_data_options options = { .batch_size = 5, .shard = rank, .num_shards = 2 };
            assert_ok(uni_dataset_iterate(&it, dataset, &options, &failure));
            (void)take_epoch(it, 4, seen);
            close_with_state(it, states);
        }
        assert_ok(uni_dataset_merge_states(&merged, states, &failure));
        said = run_ranks(dataset, 3, 1, 4, 6, true, merged, seen);
        for (int rank = 0; rank < 4 && said != NULL; rank++) { /* by blocks again */
            uni_data_options options = {
                .batch_size = 6, .shard = rank, .num_shards = 4, .state = said
            };
            assert_ok(uni_dataset_iterate(&it, dataset, &options, &failure));
            (void)take_epoch(it, INT64_MAX, seen);
            uni_dataset_iterator_free(it);
        }
        for (int64_t id = 0; id < rows; id++)
            assert_int_equal(seen[id], 1);
        uni_value_free(said);
        uni_value_free(merged);
        uni_value_free(states);
        free(seen);
        uni_dataset_unref(dataset);
    }
}

static void too_few_rows_are_told(void **state)
{
    uni_dataset *range = NULL;
    uni_dataset_iterator *it = NULL;
    uni_table *batch = NULL;
    uni_value *stats = NULL;
    assert_ok(uni_dataset_range(&range, 2, &failure));
    uni_data_options options = { .num_shards = 3, .equal = true, .no_empty = true };
    assert_ok(uni_dataset_iterate(&it, range, &options, &failure));
    assert_int_equal(uni_dataset_iterator_next(&batch, it, &failure), 0);
    assert_ok(uni_dataset_iterator_stats(&stats, it, &failure));
    assert_int_equal(uni_dict_get_int(stats, "left_out", -1), 2);
    uni_value_free(stats);
    uni_dataset_iterator_free(it);
    uni_dataset_unref(range);
}

static int read_all(uni_dataset_iterator *it)
{
    uni_table *batch = NULL;
    int more;
    while ((more = uni_dataset_iterator_next(&batch, it, &failure)) > 0)
        uni_table_unref(batch);
    return more;
}

static void counts_that_were_given(void **state)
{
    int64_t rows = 0, wrong[20];
    uni_dataset *dataset = make_uneven(20, 4, &rows);
    uni_dataset_iterator *it = NULL;
    for (int i = 0; i < 20; i++)
        wrong[i] = 100;
    uni_data_options options = { .num_shards = 2, .equal = true, .block_rows = wrong };
    assert_ok(uni_dataset_iterate(&it, dataset, &options, &failure));
    assert_fails(read_all(it), UNI_EMISMATCH, "fewer rows than were counted");
    uni_dataset_iterator_free(it);
    uni_dataset_unref(dataset);
}

/* ---- parts of a global batch ---- */

static void check_parts(int64_t rows, int64_t global_batch, int ranks)
{
    uni_dataset *range = NULL;
    uni_dataset_iterator *whole = NULL, *parts[16];
    uni_table *batch = NULL, *part = NULL;
    assert_ok(uni_dataset_range(&range, rows, &failure));
    shuffle(&range, 0);
    assert_ok(uni_dataset_iterate(&whole, range, &(uni_data_options){ .batch_size = global_batch },
                                  &failure));
    for (int rank = 0; rank < ranks; rank++)
        assert_ok(uni_dataset_iterate(&parts[rank], range,
                                      &(uni_data_options){ .global_batch_size = global_batch,
                                                           .shard = rank,
                                                           .num_shards = ranks },
                                      &failure));
    while (uni_dataset_iterator_next(&batch, whole, &failure) > 0) {
        const int64_t *ids = uni_array_data(uni_table_find(batch, "id")->values);
        int64_t at = 0, first = 0, global = 0;
        for (int rank = 0; rank < ranks; rank++) {
            assert_int_equal(uni_dataset_iterator_next(&part, parts[rank], &failure), 1);
            uni__dataset_iterator_place(parts[rank], &first, &global);
            assert_int_equal(first, at);
            assert_int_equal(global, uni_table_num_rows(batch));
            assert_memory_equal(uni_array_data(uni_table_find(part, "id")->values), ids + at,
                                (size_t)uni_table_num_rows(part) * 8);
            at += uni_table_num_rows(part);
            uni_table_unref(part);
        }
        assert_int_equal(at, uni_table_num_rows(batch));
        uni_table_unref(batch);
    }
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(uni_dataset_iterator_next(&part, parts[rank], &failure), 0);
        uni_dataset_iterator_free(parts[rank]);
    }
    uni_dataset_iterator_free(whole);
    uni_dataset_unref(range);
}

static void parts_make_the_global_batch(void **state)
{
    check_parts(1003, 50, 7);
    check_parts(8 * 6 + 7, 8,
                5); /* a rank's part of the remainder is at most its part of a batch */
    for (int64_t rest = 1; rest < 13; rest++)
        check_parts(13 + rest, 13, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_get_as_many_batches),
        cmocka_unit_test(equal_after_a_resume),
        cmocka_unit_test(shards_of_streams_stay_together),
        cmocka_unit_test(equal_says_what_it_cannot),
        cmocka_unit_test(no_batch_is_empty),
        cmocka_unit_test(whole_batches_only),
        cmocka_unit_test(other_numbers_go_on),
        cmocka_unit_test(with_and_without),
        cmocka_unit_test(too_few_rows_are_told),
        cmocka_unit_test(counts_that_were_given),
        cmocka_unit_test(parts_make_the_global_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
