/*
 * contract_test.c - what every transport must keep: contract_test thread|shm [one test].
 *
 * Values are whole numbers small enough that sums are exact in every type, so the expected results are known
 * without repeating the library's loops; the bit-equality tests use numbers whose sum depends on the order.
 */
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <unisono/session.h>

#include "comm/shared.h"
#include "comm/rendezvous.h"
#include "harness.h"

static const char *transport = "thread";
static const int sizes[] = { 1, 2, 3, 4, 7 };
static const size_t counts[] = { 0, 1, 3, 17, 1000, 5003 };
static const uni_dtype dtypes[] = { UNI_F32, UNI_F64, UNI_I32, UNI_I64, UNI_U8,
                                    UNI_I8,  UNI_I16, UNI_F16, UNI_BF16 };
#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

static bool is_narrow(uni_dtype dtype)
{
    return dtype == UNI_F16 || dtype == UNI_BF16;
}

static bool is_float(uni_dtype dtype)
{
    return dtype == UNI_F32 || dtype == UNI_F64 || is_narrow(dtype);
}

/* MPI has no reductions of them. */
static bool can_reduce(const rank *me, uni_dtype dtype)
{
    const char *over = uni_comm_info_of(me->comm)->transport;
    return !is_narrow(dtype) || strcmp(over, "thread") == 0 || strcmp(over, "shm") == 0 ||
           strcmp(over, "ucx") == 0;
}

/* Only for whole numbers below 256, which both narrow floats hold exactly, and their means. */
static double narrow_value(uint16_t bits, int mantissa, int bias)
{
    int exponent = (bits & 0x7fff) >> mantissa, rest = bits & ((1 << mantissa) - 1);
    double size = exponent ? ldexp(1 + ldexp(rest, -mantissa), exponent - bias)
                           : ldexp(rest, 1 - bias - mantissa);
    return bits & 0x8000 ? -size : size;
}

static uint16_t narrow_bits(double value, int mantissa, int bias)
{
    int exponent, sign = value < 0 ? 0x8000 : 0;
    double fraction = frexp(fabs(value), &exponent) * 2 - 1;
    if (value == 0)
        return 0;
    return (uint16_t)(sign | (exponent - 1 + bias) << mantissa | (int)ldexp(fraction, mantissa));
}

static double get(const void *data, uni_dtype dtype, size_t i)
{
    switch (dtype) {
    case UNI_I8:
        return ((const int8_t *)data)[i];
    case UNI_I16:
        return ((const int16_t *)data)[i];
    case UNI_F16:
        return narrow_value(((const uint16_t *)data)[i], 10, 15);
    case UNI_BF16:
        return narrow_value(((const uint16_t *)data)[i], 7, 127);
    case UNI_F32:
        return ((const float *)data)[i];
    case UNI_F64:
        return ((const double *)data)[i];
    case UNI_I32:
        return ((const int32_t *)data)[i];
    case UNI_I64:
        return (double)((const int64_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

static void set(void *data, uni_dtype dtype, size_t i, double value)
{
    switch (dtype) {
    case UNI_I8:
        ((int8_t *)data)[i] = (int8_t)value;
        break;
    case UNI_I16:
        ((int16_t *)data)[i] = (int16_t)value;
        break;
    case UNI_F16:
        ((uint16_t *)data)[i] = narrow_bits(value, 10, 15);
        break;
    case UNI_BF16:
        ((uint16_t *)data)[i] = narrow_bits(value, 7, 127);
        break;
    case UNI_F32:
        ((float *)data)[i] = (float)value;
        break;
    case UNI_F64:
        ((double *)data)[i] = value;
        break;
    case UNI_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case UNI_I64:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)(int)value;
    }
}

/* Element i of rank r: differs by rank and place, never more than 28, so that 7 ranks fit a byte. */
static double value_of(int r, size_t i)
{
    return (double)((i * 7 + (size_t)r * 5 + i / 11) % 29);
}

static double expected(uni_comm_op op, int n, size_t i)
{
    double sum = 0, low = 1e9, high = -1e9;
    for (int r = 0; r < n; r++) {
        double v = value_of(r, i);
        sum += v;
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    return op == UNI_COMM_SUM    ? sum
           : op == UNI_COMM_MEAN ? sum / n
           : op == UNI_COMM_MIN  ? low
                                 : high;
}

/* What is left of a whole number in this type: an int8 wraps. */
static double held(uni_dtype dtype, double value)
{
    return dtype == UNI_I8 ? (double)(int8_t)(int)value : value;
}

static void fill(const rank *me, void *data, uni_dtype dtype, size_t count)
{
    for (size_t i = 0; i < count; i++)
        set(data, dtype, i, value_of(me->rank, i));
}

static bool close_to(uni_dtype dtype, double a, double b)
{
    double places = dtype == UNI_F16 ? 0x1p-11 : dtype == UNI_BF16 ? 0x1p-8 : 1e-6;
    return fabs(a - b) <= places * (1 + fabs(b));
}

static const char *check_all_reduce(rank *me, void *in, void *out, size_t count, uni_dtype dtype,
                                    uni_comm_op op)
{
    fill(me, in, dtype, count);
    OK(uni_comm_all_reduce(me->comm, in, out, count, dtype, op, err));
    for (size_t i = 0; i < count; i++)
        if (!close_to(dtype, get(out, dtype, i), held(dtype, expected(op, me->size, i))))
            return say(me,
                       "rank %d of %d: all_reduce %d of %s, %zu elements, place %zu: %g, not %g",
                       me->rank, me->size, (int)op, uni_dtype_name(dtype), count, i,
                       get(out, dtype, i), held(dtype, expected(op, me->size, i)));
    if (in != out)
        for (size_t i = 0; i < count; i++)
            CHECK(get(in, dtype, i) == value_of(me->rank, i));
    return NULL;
}

static const char *all_reduce_rank(rank *me)
{
    const char *wrong = NULL;
    size_t most = counts[LENGTH(counts) - 1] * 8;
    void *a = malloc(most), *b = malloc(most);
    uni_comm_buffer *mine = NULL, *other = NULL;
    OK(uni_comm_alloc(&mine, me->comm, most, err));
    OK(uni_comm_alloc(&other, me->comm, most, err));
    void *s = uni_comm_buffer_data(mine), *t = uni_comm_buffer_data(other);
    for (size_t d = 0; d < LENGTH(dtypes); d++)
        for (size_t c = 0; c < LENGTH(counts); c++)
            for (int op = UNI_COMM_SUM; op <= UNI_COMM_MAX && !wrong; op++) {
                if ((op == UNI_COMM_MEAN && !is_float(dtypes[d])) || !can_reduce(me, dtypes[d]))
                    continue;
                /* Plain memory, shared memory, one of each, and ranks that do not agree about it. */
                void *ways[][2] = { { a, a }, { a, b }, { s, s },
                                    { s, t }, { s, a }, { me->rank % 2 ? a : s, t } };
                for (size_t w = 0; w < LENGTH(ways) && !wrong; w++)
                    wrong = check_all_reduce(me, ways[w][0], ways[w][1], counts[c], dtypes[d],
                                             (uni_comm_op)op);
            }
    free(a);
    free(b);
    return wrong;
}

static void on_all_sizes(rank_function function)
{
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        run_options options = { .transport = transport, .size = sizes[i], .seconds = 250 };
        const char *wrong = run_ranks(&options, function, NULL);
        if (wrong)
            fail_msg("%d ranks: %s", sizes[i], wrong);
    }
}

static void test_all_reduce(void **state)
{
    on_all_sizes(all_reduce_rank);
}

static const char *check_scatter(rank *me, void *in, void *out, size_t count, uni_dtype dtype)
{
    size_t n = (size_t)me->size, first = (size_t)me->rank * count;
    fill(me, in, dtype, count * n);
    OK(uni_comm_reduce_scatter(me->comm, in, out, count, dtype, UNI_COMM_MAX, err));
    for (size_t i = 0; i < count; i++)
        CHECK(get(out, dtype, i) == expected(UNI_COMM_MAX, me->size, first + i));
    /* In place: my part of the whole is the output. */
    fill(me, in, dtype, count * n);
    char *part = (char *)in + first * uni_dtype_size(dtype);
    OK(uni_comm_reduce_scatter(me->comm, in, part, count, dtype, UNI_COMM_SUM, err));
    for (size_t i = 0; i < count; i++)
        CHECK(get(part, dtype, i) == held(dtype, expected(UNI_COMM_SUM, me->size, first + i)));
    return NULL;
}

/* Everything else, on plain and on shared memory. */
static const char *check_moves(rank *me, void *in, void *out, size_t count, uni_dtype dtype)
{
    size_t n = (size_t)me->size;
    int r = me->rank;
    for (int root = 0; root < me->size; root++) {
        fill(me, in, dtype, count);
        OK(uni_comm_broadcast(me->comm, in, count, dtype, root, err));
        for (size_t i = 0; i < count; i++)
            CHECK(get(in, dtype, i) == value_of(root, i));
        if (!can_reduce(me, dtype))
            continue;
        fill(me, in, dtype, count);
        OK(uni_comm_reduce(me->comm, in, r == root ? out : NULL, count, dtype, UNI_COMM_SUM, root,
                           err));
        for (size_t i = 0; i < count && r == root; i++)
            CHECK(get(out, dtype, i) == held(dtype, expected(UNI_COMM_SUM, me->size, i)));
    }
    fill(me, in, dtype, count);
    OK(uni_comm_all_gather(me->comm, in, out, count, dtype, err));
    for (size_t i = 0; i < count * n; i++)
        CHECK(get(out, dtype, i) == value_of((int)(i / count), i % count));
    fill(me, in, dtype, count * n);
    OK(uni_comm_all_to_all(me->comm, in, out, count, dtype, err));
    for (size_t i = 0; i < count * n; i++)
        CHECK(get(out, dtype, i) == value_of((int)(i / count), (size_t)r * count + i % count));
    /* In place: my part of the whole is the input. */
    char *part = (char *)out + (size_t)r * count * uni_dtype_size(dtype);
    fill(me, part, dtype, count);
    OK(uni_comm_all_gather(me->comm, part, out, count, dtype, err));
    for (size_t i = 0; i < count * n; i++)
        CHECK(get(out, dtype, i) == value_of((int)(i / count), i % count));
    return can_reduce(me, dtype) ? check_scatter(me, in, out, count, dtype) : NULL;
}

/* Rank r's element i for products (1, 2, or -1, so that 7 ranks fit a byte) and for bits. */
static int64_t small_of(uni_comm_op op, int r, size_t i)
{
    static const int factors[] = { 1, 2, 1, -1 };
    return op == UNI_COMM_PRODUCT ? factors[(i + (size_t)r * 3) % 4] : (int64_t)value_of(r, i);
}

static int64_t combined(uni_comm_op op, int n, size_t i)
{
    int64_t all = small_of(op, 0, i);
    for (int r = 1; r < n; r++) {
        int64_t v = small_of(op, r, i);
        all = op == UNI_COMM_PRODUCT ? all * v
              : op == UNI_COMM_AND   ? (all & v)
              : op == UNI_COMM_OR    ? (all | v)
                                     : (all ^ v);
    }
    return all;
}

static const char *check_combined(rank *me, void *data, size_t count, uni_dtype dtype,
                                  uni_comm_op op)
{
    for (size_t i = 0; i < count; i++)
        set(data, dtype, i, (double)small_of(op, me->rank, i));
    OK(uni_comm_all_reduce(me->comm, data, data, count, dtype, op, err));
    for (size_t i = 0; i < count; i++) {
        int64_t want = combined(op, me->size, i);
        CHECK(get(data, dtype, i) == (double)(dtype == UNI_U8 ? want & 0xff : want));
    }
    return NULL;
}

/* Products, and the bits of integers; the bits of floats are refused before data move. */
static const char *combine_rank(rank *me)
{
    const char *wrong = NULL;
    double data[2049];
    for (size_t d = 0; d < LENGTH(dtypes) && !wrong; d++)
        for (int op = UNI_COMM_PRODUCT; op <= UNI_COMM_XOR && !wrong; op++) {
            uni_error err = { 0 };
            if (op != UNI_COMM_PRODUCT && is_float(dtypes[d]))
                CHECK(uni_comm_all_reduce(me->comm, data, data, 1, dtypes[d], (uni_comm_op)op,
                                          &err) == UNI_EDTYPE);
            else if (can_reduce(me, dtypes[d]))
                wrong = check_combined(me, data, LENGTH(data), dtypes[d], (uni_comm_op)op);
        }
    return wrong;
}

static void test_combine(void **state)
{
    on_all_sizes(combine_rank);
}

static const char *moves_rank(rank *me)
{
    static const size_t few[] = { 0, 1, 17, 2049 };
    const char *wrong = NULL;
    size_t most = 2049 * (size_t)me->size * 8;
    uni_comm_buffer *one = NULL, *two = NULL;
    OK(uni_comm_alloc(&one, me->comm, most, err));
    OK(uni_comm_alloc(&two, me->comm, most, err));
    void *a = malloc(most), *b = malloc(most);
    for (size_t d = 0; d < LENGTH(dtypes); d++)
        for (size_t c = 0; c < LENGTH(few) && !wrong; c++) {
            wrong = check_moves(me, a, b, few[c], dtypes[d]);
            if (!wrong)
                wrong = check_moves(me, uni_comm_buffer_data(one), uni_comm_buffer_data(two),
                                    few[c], dtypes[d]);
        }
    free(a);
    free(b);
    if (wrong)
        return wrong;
    OK(uni_comm_barrier(me->comm, err));
    OK(uni_comm_finalize(me->comm, err));
    return NULL;
}

static void test_moves(void **state)
{
    on_all_sizes(moves_rank);
}

/* Memory of all kinds in one call: some ranks' is seen by the others, some ranks' not, at other places in each; also out of place. */
static const char *check_mixed(rank *me, uni_comm_buffer *buffer, float *own, size_t count)
{
    float *seen = uni_comm_buffer_data(buffer);
    size_t shift = 16 * (size_t)me->rank, n = count - 16 * (size_t)me->size;
    const char *wrong = check_all_reduce(me, me->rank % 3 ? seen : own, me->rank % 3 ? seen : own,
                                         n, UNI_F32, UNI_COMM_SUM);
    if (!wrong) /* the first rank only: over hosts another host sees all of its buffers */
        wrong = check_all_reduce(me, me->rank ? seen : own, me->rank ? seen : own, n, UNI_F32,
                                 UNI_COMM_MAX);
    if (!wrong)
        wrong = check_all_reduce(me, seen + shift, seen + shift, n, UNI_F32, UNI_COMM_SUM);
    if (!wrong)
        wrong = check_all_reduce(me, seen, own, n, UNI_F32, UNI_COMM_MEAN);
    if (!wrong)
        wrong = check_all_reduce(me, seen, seen + count / 2, count / 2, UNI_F32, UNI_COMM_MIN);
    if (!wrong)
        wrong = check_all_reduce(me, seen, seen, count, UNI_U8, UNI_COMM_SUM);
    return wrong;
}

/* Large ones, which need many windows. */
static const char *large_rank(rank *me)
{
    size_t count = 600001;
    float *a = malloc(count * sizeof *a);
    uni_comm_buffer *buffer = NULL;
    OK(uni_comm_alloc(&buffer, me->comm, count * sizeof *a, err));
    const char *wrong = check_all_reduce(me, a, a, count, UNI_F32, UNI_COMM_MEAN);
    if (!wrong)
        wrong = check_all_reduce(me, uni_comm_buffer_data(buffer), uni_comm_buffer_data(buffer),
                                 count, UNI_F32, UNI_COMM_SUM);
    if (!wrong)
        wrong = check_mixed(me, buffer, a, count);
    if (!wrong && me->size <= 3) {
        void *all = malloc(count * sizeof(double)), *in = malloc(count * sizeof(double));
        wrong = check_moves(me, in, all, 200000, UNI_F64);
        free(all);
        free(in);
    }
    free(a);
    return wrong;
}

static void test_large(void **state)
{
    on_all_sizes(large_rank);
}

/* Sums that depend on their order are the same bits on all ranks and in all ways. */
static const char *bits_rank(rank *me)
{
    enum { COUNT = 5000 };
    uint64_t hash[2] = { 0 };
    float *a = malloc(COUNT * sizeof *a);
    uni_comm_buffer *buffer = NULL;
    OK(uni_comm_alloc(&buffer, me->comm, COUNT * sizeof *a, err));
    for (int way = 0; way < 2; way++)
        for (size_t count = 100; count <= COUNT; count += 4900) {
            float *data = way ? uni_comm_buffer_data(buffer) : a;
            for (size_t i = 0; i < count; i++)
                data[i] = ldexpf(1.0f + (float)((i * 31 + (size_t)me->rank * 17) % 97) / 97.0f,
                                 (int)((i + (size_t)me->rank * 3) % 24) - 12);
            OK(uni_comm_all_reduce(me->comm, data, data, count, UNI_F32, UNI_COMM_SUM, err));
            OK(uni_comm_check_equal(me->comm, data, count * sizeof *data, "sums", err));
            for (size_t i = 0; i < count; i++) {
                uint32_t bits;
                memcpy(&bits, &data[i], sizeof bits);
                hash[way] = hash[way] * 1099511628211u + bits;
            }
        }
    free(a);
    CHECK(hash[0] == hash[1]);
    me->result->value = hash[0];
    return NULL;
}

static void test_same_bits(void **state)
{
    rank_result first[4], second[4];
    run_options options = { .transport = transport, .size = 4 };
    const char *wrong = run_ranks(&options, bits_rank, first);
    if (wrong || (wrong = run_ranks(&options, bits_rank, second)))
        fail_msg("%s", wrong);
    for (int r = 0; r < 4; r++)
        assert_true(first[r].value == first[0].value && second[r].value == first[0].value);
}

static const char *weighted_rank(rank *me)
{
    /* Rank r has r samples, each with gradient r + 1; rank 0 has none. */
    double sums[3], total = 0, want = 0, weights = 0;
    for (int i = 0; i < 3; i++)
        sums[i] = (double)me->rank * (me->rank + 1);
    for (int r = 0; r < me->size; r++) {
        want += (double)r * (r + 1);
        weights += r;
    }
    OK(uni_comm_all_reduce_weighted(me->comm, sums, sums, 3, UNI_F64, me->rank, &total, err));
    CHECK(total == weights);
    for (int i = 0; i < 3; i++)
        CHECK(weights > 0 ? close_to(UNI_F64, sums[i], want / weights) : sums[i] == 0);
    return NULL;
}

static void test_weighted(void **state)
{
    on_all_sizes(weighted_rank);
}

/* A ring of messages, small (sent ahead) and large (handed over), and both first sending. */
static const char *ring_rank(rank *me)
{
    static const size_t lengths[] = { 0, 1, 1000, 300001 };
    if (me->size == 1)
        return NULL;
    int next = (me->rank + 1) % me->size, previous = (me->rank + me->size - 1) % me->size;
    int32_t *out = malloc(300001 * 4), *in = malloc(300001 * 4);
    for (size_t l = 0; l < LENGTH(lengths); l++)
        for (int round = 0; round < 3; round++) {
            uni_comm_request *sent = NULL;
            for (size_t i = 0; i < lengths[l]; i++)
                out[i] = me->rank * 1000000 + (int)i + round;
            OK(uni_comm_send_start(&sent, me->comm, out, lengths[l], UNI_I32, next, err));
            OK(uni_comm_recv(me->comm, in, lengths[l], UNI_I32, previous, err));
            OK(uni_comm_wait(sent, err));
            for (size_t i = 0; i < lengths[l]; i++)
                CHECK(in[i] == previous * 1000000 + (int)i + round);
        }
    free(out);
    free(in);
    return NULL;
}

static void test_send_recv(void **state)
{
    on_all_sizes(ring_rank);
}

/* Many under way, ended in another order on each rank. */
static const char *requests_rank(rank *me)
{
    enum { MANY = 12, COUNT = 3000 };
    static const int orders[2][MANY] = { { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 },
                                         { 11, 3, 7, 0, 1, 10, 2, 9, 4, 8, 5, 6 } };
    float *data = malloc(MANY * COUNT * sizeof *data);
    for (int round = 0; round < 5; round++) {
        uni_comm_request *requests[MANY];
        for (size_t i = 0; i < MANY * COUNT; i++)
            data[i] = (float)(value_of(me->rank, i) + round);
        for (int i = 0; i < MANY; i++)
            OK(uni_comm_all_reduce_start(
                &requests[i], me->comm, data + (size_t)i * COUNT, data + (size_t)i * COUNT,
                (size_t)(i % 3 == 0 ? 10 : COUNT), UNI_F32, UNI_COMM_SUM, 1, err));
        OK(uni_comm_progress(me->comm, err));
        for (int i = 0; i < MANY; i++) {
            int which = orders[me->rank % 2][i];
            bool done = false;
            if (i % 2)
                OK(uni_comm_wait(requests[which], err));
            else
                while (!done) {
                    OK(uni_comm_test(&done, requests[which], err));
                    sched_yield();
                }
        }
        for (size_t i = 0; i < MANY * COUNT; i++) {
            bool reduced = i / COUNT % 3 || i % COUNT < 10;
            double want = reduced ? expected(UNI_COMM_SUM, me->size, i) + round * me->size
                                  : value_of(me->rank, i) + round;
            CHECK(data[i] == (float)want);
        }
    }
    free(data);
    return NULL;
}

static void test_requests(void **state)
{
    on_all_sizes(requests_rank);
}

/* This process is one rank: under mpirun, or (session) of a run, which may be over several hosts. Every function once, on one communicator. */
static int run_as_rank(bool in_session)
{
    static const rank_function functions[] = { all_reduce_rank, large_rank,   weighted_rank,
                                               ring_rank,       combine_rank, requests_rank,
                                               moves_rank /* which ends it */ };
    static rank_result result;
    uni_error err = { 0 };
    rank me = { .result = &result };
    uni_session *session = NULL;
    int status = in_session ? uni_session_open(&session, &err) : 0;
    if (status == 0)
        status = in_session ? uni_session_comm(&me.comm, session, NULL, &err)
                            : uni__comm_open_mpi(&me.comm, NULL, NULL, NULL, &err);
    if (status < 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.code == UNI_EUNSUPPORTED ? 77 : 1;
    }
    printf("transport %s\n", uni_comm_info_of(me.comm)->transport);
    fflush(stdout);
    me.rank = uni_comm_info_of(me.comm)->rank;
    me.size = uni_comm_info_of(me.comm)->size;
    for (size_t i = 0; i < LENGTH(functions); i++) {
        const char *wrong = functions[i](&me);
        if (wrong) {
            fprintf(stderr, "function %zu: %s\n", i, wrong);
            _exit(1);
        }
    }
    uni_comm_close(me.comm);
    uni_session_close(session);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "mpi") == 0 || strcmp(argv[1], "session") == 0))
        return run_as_rank(strcmp(argv[1], "session") == 0);
    if (argc > 1)
        transport = argv[1];
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce), cmocka_unit_test(test_combine),
        cmocka_unit_test(test_moves),      cmocka_unit_test(test_large),
        cmocka_unit_test(test_same_bits),  cmocka_unit_test(test_weighted),
        cmocka_unit_test(test_send_recv),  cmocka_unit_test(test_requests),
    };
    return cmocka_run_group_tests_name(transport, tests, NULL, NULL);
}
