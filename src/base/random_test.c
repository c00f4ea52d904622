/*
 * random_test.c - compares Philox with the published answers, the distributions with their moments,
 * and the permutation with its definition.
 */
#include "base/test.h"
#include <math.h>
#include "base/random.h"

/* kat_vectors of Random123 (D. E. Shaw Research), philox4x32 with 10 rounds. */
static void known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } cases[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t out[4];
        uni__philox(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].expected, sizeof out);
    }
}

/* Runs must be repeatable across versions: the mapping from counters to words is a promise. */
static void the_mapping_is_fixed(void **state)
{
    assert_true(uni__random_u64(0, 0, 0) == 0xe169c58d6627e8d5u);
    assert_true(uni__random_u64(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88) ==
                0x94fdccebd16cfe09u);
    assert_true(uni__random_unit(0, 0, 0) == (double)(0xe169c58d6627e8d5u >> 11) / 0x1p53);
}

static void units_are_uniform(void **state)
{
    int n = 200000, buckets[16] = { 0 };
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double unit = uni__random_unit(42, 1, (uint64_t)i);
        assert_true(unit >= 0 && unit < 1);
        sum += unit;
        buckets[(int)(unit * 16)]++;
    }
    assert_true(fabs(sum / n - 0.5) < 5 / sqrt(12.0 * n));
    double chi = 0, expected = n / 16.0;
    for (int i = 0; i < 16; i++)
        chi += (buckets[i] - expected) * (buckets[i] - expected) / expected;
    assert_true(chi < 44.3); /* 15 degrees of freedom, one in 10,000 */
}

static void normals_have_the_right_moments(void **state)
{
    int n = 200000, beyond = 0;
    double sum = 0, squares = 0, fourth = 0;
    for (int i = 0; i < n; i++) {
        double x = uni__random_normal(42, 2, (uint64_t)i);
        assert_true(isfinite(x));
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
        beyond += fabs(x) > 1.959964;
    }
    assert_true(fabs(sum / n) < 5 / sqrt(n));
    assert_true(fabs(squares / n - 1) < 5 * sqrt(2.0 / n));
    assert_true(fabs(fourth / n - 3) < 5 * sqrt(96.0 / n));
    assert_true(fabs(beyond / (double)n - 0.05) < 5 * sqrt(0.05 * 0.95 / n));
}

static void streams_and_keys_differ(void **state)
{
    assert_true(uni__random_u64(1, 0, 0) != uni__random_u64(2, 0, 0));
    assert_true(uni__random_u64(1, 1, 0) != uni__random_u64(1, 0, 1));
    assert_true(uni__random_u64(1, (uint64_t)1 << 32, 0) != uni__random_u64(1, 0, 0));
    assert_true(uni__random_u64((uint64_t)1 << 32, 0, 0) != uni__random_u64(0, 0, 0));
}

static void permutations_are_bijections(void **state)
{
    static const uint64_t sizes[] = { 1,  2,  3,  4,  5,    7,    8,     9,
                                      10, 63, 64, 65, 1000, 1797, 65536, 65537 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (uint64_t key = 0; key < 3; key++) {
            char *seen = calloc(1, sizes[s]);
            uint64_t same = 0;
            for (uint64_t i = 0; i < sizes[s]; i++) {
                uint64_t place = uni__random_permute(key, sizes[s], i);
                assert_true(place < sizes[s]);
                assert_int_equal(seen[place]++, 0);
                same += place == i;
            }
            if (sizes[s] >= 1000) /* a permutation has one fixed point on average */
                assert_true(same < 10);
            free(seen);
        }
    }
    assert_int_equal(uni__random_permute(1, 0, 0), 0);
    for (uint64_t i = 0; i < 100; i++) { /* huge ranges too */
        assert_true(uni__random_permute(1, UINT64_MAX, UINT64_MAX - 1 - i) < UINT64_MAX);
        assert_true(uni__random_permute(1, ((uint64_t)1 << 40) + 1, i) <= (uint64_t)1 << 40);
    }
}

/* Many at once give the same as one by one, wherever they begin and however many lanes they
 * fill. */
static void permutations_of_many(void **state)
{
    static const uint64_t sizes[] = { 0, 1, 2, 3, 9, 65, 1437, 65537, ((uint64_t)1 << 40) + 1 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t count = 0; count < 70; count += count < 7 ? 1 : 31) {
            uint64_t many[70], first = sizes[s] > 70 ? sizes[s] - 70 : 0;
            for (size_t i = 0; i < count; i++)
                many[i] = sizes[s] > 0 ? (first + i) % sizes[s] : i;
            uni__random_permute_all(5, sizes[s], many, count);
            for (size_t i = 0; i < count; i++)
                assert_int_equal(
                    many[i],
                    uni__random_permute(5, sizes[s], sizes[s] > 0 ? (first + i) % sizes[s] : i));
        }
    }
}

/* Over many keys every index goes to every place about equally often, even for tiny n. */
static void places_are_uniform_over_keys(void **state)
{
    static const uint64_t sizes[] = { 2, 3, 5, 8, 16 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint64_t n = sizes[s], keys = 20000;
        int counts[16][16] = { { 0 } };
        for (uint64_t key = 0; key < keys; key++)
            for (uint64_t i = 0; i < n; i++)
                counts[i][uni__random_permute(key, n, i)]++;
        double expected = (double)keys / (double)n, worst = 0;
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t place = 0; place < n; place++)
                worst = fmax(worst, fabs(counts[i][place] - expected) / sqrt(expected));
        assert_true(worst < 5);
    }
}

/* Neighbors must not stay neighbors: batches would be alike. */
static void neighbours_are_torn_apart(void **state)
{
    uint64_t n = 10000, near = 0;
    for (uint64_t i = 0; i + 1 < n; i++) {
        int64_t distance =
            (int64_t)(uni__random_permute(7, n, i) - uni__random_permute(7, n, i + 1));
        near += distance >= -10 && distance <= 10;
    }
    assert_true(near < 60); /* 20 expected */
}

static void system_bytes_differ(void **state)
{
    uint8_t first[32] = { 0 }, second[32] = { 0 };
    assert_int_equal(uni__random_system(first, sizeof first), 0);
    assert_int_equal(uni__random_system(second, sizeof second), 0);
    assert_memory_not_equal(first, second, sizeof first);
    assert_int_equal(uni__random_system(NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(the_mapping_is_fixed),
        cmocka_unit_test(units_are_uniform),
        cmocka_unit_test(normals_have_the_right_moments),
        cmocka_unit_test(streams_and_keys_differ),
        cmocka_unit_test(permutations_are_bijections),
        cmocka_unit_test(permutations_of_many),
        cmocka_unit_test(places_are_uniform_over_keys),
        cmocka_unit_test(neighbours_are_torn_apart),
        cmocka_unit_test(system_bytes_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
