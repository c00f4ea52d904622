/*
 * kernels_test.c - the narrow floats: every value survives, and sums and products are those of
 * NumPy (float16) and PyTorch (bfloat16), with the plain and with the AVX2 kernels.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "comm/kernels.h"

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

/* a, b, a + b and a * b of numpy.float16, drawn at random; among them subnormals and overflows. */
static const uint16_t of_numpy[][4] = {
    { 0xabb8, 0xa803, 0xadde, 0x17be }, { 0xce14, 0xceb7, 0xd266, 0x611a },
    { 0x05cc, 0x8793, 0x81c7, 0x8000 }, { 0xced5, 0xcc8d, 0xd1b1, 0x5fc6 },
    { 0x7806, 0xfaf6, 0xf5e0, 0xfc00 }, { 0x83ec, 0x83b2, 0x879e, 0x0000 },
    { 0xa157, 0x230f, 0x1ae0, 0x88b6 }, { 0x492a, 0x4a30, 0x4dad, 0x57fd },
    { 0xfac2, 0xf85e, 0xfc00, 0x7c00 }, { 0x0dce, 0x8d76, 0x0160, 0x8002 },
    { 0x83ec, 0x83b2, 0x879e, 0x0000 }, { 0x0042, 0x031a, 0x035c, 0x0000 },
    { 0x004e, 0x00e9, 0x0137, 0x0000 }, { 0x80dc, 0x0238, 0x015c, 0x8000 },
    { 0x7806, 0xfaf6, 0xf5e0, 0xfc00 }, { 0xfac2, 0xf85e, 0xfc00, 0x7c00 },
    { 0x6224, 0x6143, 0x65b4, 0x7c00 }, { 0x0dce, 0x8d76, 0x0160, 0x8002 },
    { 0x9239, 0x917d, 0x95db, 0x0009 }, { 0x0b97, 0x0b36, 0x0f66, 0x0001 },
    { 0x0c7b, 0x8ea2, 0x884e, 0x8002 }, { 0x1da0, 0x9cdb, 0x1228, 0x81b5 },
};

/* The same of torch.bfloat16. */
static const uint16_t of_torch[][4] = {
    { 0x0b4d, 0x0a8c, 0x0b8a, 0x0000 }, { 0x72c6, 0xf3ed, 0xf3bc, 0xff80 },
    { 0xfde1, 0x7cc6, 0xfdb0, 0xff80 }, { 0x9dd0, 0x1eda, 0x1ea6, 0x8001 },
    { 0xa1a2, 0xa13d, 0xa200, 0x036f }, { 0xb81c, 0x38a7, 0x3832, 0xb14c },
    { 0x8e7f, 0x8c9f, 0x8e89, 0x0000 }, { 0xf54e, 0xf7c9, 0xf7cf, 0x7f80 },
    { 0xc404, 0xc748, 0xc74a, 0x4bce }, { 0x4559, 0xc7c2, 0xc7bb, 0xcda4 },
    { 0x02bd, 0x80c6, 0x02b1, 0x8000 }, { 0x024d, 0x80c3, 0x0235, 0x8000 },
    { 0x02af, 0x8383, 0x832e, 0x8000 }, { 0x82b7, 0x8200, 0x82f7, 0x0000 },
    { 0x72c6, 0xf3ed, 0xf3bc, 0xff80 }, { 0xfde1, 0x7cc6, 0xfdb0, 0xff80 },
    { 0xf54e, 0xf7c9, 0xf7cf, 0x7f80 }, { 0x9dd0, 0x1eda, 0x1ea6, 0x8001 },
    { 0x9fff, 0x9ee9, 0xa01d, 0x001d }, { 0x1e31, 0x1eee, 0x1f23, 0x0003 },
    { 0x9efa, 0x9f70, 0x9fb6, 0x000f }, { 0x1ff6, 0x1d1c, 0x1ffb, 0x0002 },
};

static const uni__kernels *tables[2];

/* The function that the library would choose for this type: by the sum of two inputs. */
static void combine(const uni__kernels *kernels, uni_dtype dtype, uni_comm_op op, uint16_t *out,
                    const uint16_t *a, const uint16_t *b, size_t n)
{
    const void *in[2] = { a, b };
    void *const to[1] = { out };
    uni__reduce_many(kernels, dtype, op, 0, in, 2, to, 1, n);
}

static void check_rows(uni_dtype dtype, const uint16_t (*rows)[4], size_t count)
{
    for (size_t t = 0; t < LENGTH(tables); t++)
        for (size_t i = 0; i < count; i++) {
            uint16_t sum, product;
            combine(tables[t], dtype, UNI_COMM_SUM, &sum, &rows[i][0], &rows[i][1], 1);
            combine(tables[t], dtype, UNI_COMM_PRODUCT, &product, &rows[i][0], &rows[i][1], 1);
            assert_int_equal(sum, rows[i][2]);
            assert_int_equal(product, rows[i][3]);
        }
}

static void numbers_of_numpy(void **state)
{
    check_rows(UNI_F16, of_numpy, LENGTH(of_numpy));
}

static void numbers_of_torch(void **state)
{
    check_rows(UNI_BF16, of_torch, LENGTH(of_torch));
}

/* The maximum of a value and itself is the value: the conversions lose nothing, and a NaN stays
 * one. */
static void check_every_value(uni_dtype dtype, unsigned infinity)
{
    static uint16_t all[65536], out[65536];
    for (unsigned i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (size_t t = 0; t < LENGTH(tables); t++) {
        combine(tables[t], dtype, UNI_COMM_MAX, out, all, all, 65536);
        for (unsigned i = 0; i < 65536; i++)
            if ((i & 0x7fff) <= infinity)
                assert_int_equal(out[i], i);
            else
                assert_true((out[i] & 0x7fffu) > infinity);
    }
}

static void every_value(void **state)
{
    check_every_value(UNI_F16, 0x7c00);
    check_every_value(UNI_BF16, 0x7f80);
}

/* A tie goes to the even neighbour, upwards and downwards: 2048 + 1, 2050 + 1 and 256 + 1, 258 + 1
 * lie between two values of float16 and of bfloat16. */
static void ties(void **state)
{
    static const uint16_t f16[][3] = { { 0x6800, 0x3c00, 0x6800 }, { 0x6801, 0x3c00, 0x6802 } };
    static const uint16_t bf16[][3] = { { 0x4380, 0x3f80, 0x4380 }, { 0x4381, 0x3f80, 0x4382 } };
    for (size_t t = 0; t < LENGTH(tables); t++)
        for (size_t i = 0; i < 2; i++) {
            uint16_t out[2];
            combine(tables[t], UNI_F16, UNI_COMM_SUM, &out[0], &f16[i][0], &f16[i][1], 1);
            combine(tables[t], UNI_BF16, UNI_COMM_SUM, &out[1], &bf16[i][0], &bf16[i][1], 1);
            assert_int_equal(out[0], f16[i][2]);
            assert_int_equal(out[1], bf16[i][2]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_numpy),
        cmocka_unit_test(numbers_of_torch),
        cmocka_unit_test(every_value),
        cmocka_unit_test(ties),
    };
    tables[0] = &uni__kernels_base;
    tables[1] = uni__kernels_best();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
