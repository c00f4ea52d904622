/*
 * kernels_gemm.h - matrix products in tiles of 6 x 16 whose sums stay in registers. Included before
 * kernels_step.h by kernels_avx2.c only.
 *
 * c[m, n] (+)= op(a) op(b). b is copied in blocks of DEPTH x WIDTH into panels of 16 columns, which
 * the inner loop reads sequentially. Otherwise row strides that are a power of two (512 floats) map
 * to a few sets of the cache; this holds dnnl_sgemm's path without a copy at 64 of 112 GFLOP/s on
 * (64, 784) x (784, 512). a is read in place. Rows are processed in groups of ROWS, so that a panel
 * (16 KB) is used from the first-level cache many times.
 */

#define TILE_ROWS 6
#define TILE_COLS 16
#define DEPTH 256
#define WIDTH 256
#define ROWS 72

/* Computes one tile: rows x cols (16, fewer at the edge) of c = beta c + alpha a b. Element (i, p)
 * of a is a[i * a_row + p * a_step]. */
INLINE void tile(int rows, size_t cols, size_t depth, const float *a, size_t a_row, size_t a_step,
                 const float *b, float *c, size_t ldc, float alpha, float beta)
{
    v8 left[TILE_ROWS], right[TILE_ROWS];
    for (int i = 0; i < rows; i++)
        left[i] = right[i] = splat(0);
    for (size_t p = 0; p < depth; p++) {
        v8 b0 = get8(b + p * TILE_COLS), b1 = get8(b + p * TILE_COLS + 8);
        for (int i = 0; i < rows; i++) {
            v8 value = splat(a[(size_t)i * a_row + p * a_step]);
            left[i] += value * b0;
            right[i] += value * b1;
        }
    }
    for (int i = 0; i < rows; i++) {
        float *to = c + (size_t)i * ldc;
        size_t m0 = eight_of(cols), m1 = cols > 8 ? cols - 8 : 0;
        put(to, m0, beta != 0 ? beta * get(to, m0) + alpha * left[i] : alpha * left[i]);
        if (m1)
            put(to + 8, m1,
                beta != 0 ? beta * get(to + 8, m1) + alpha * right[i] : alpha * right[i]);
    }
}

/* All tiles of one panel over `rows` rows. The two orders of a are compiled separately, so that the
 * stride is a constant. */
INLINE void panel(size_t rows, size_t cols, size_t depth, const float *a, size_t a_row,
                  size_t a_step, const float *b, float *c, size_t ldc, float alpha, float beta)
{
    size_t i = 0;
    for (; i + TILE_ROWS <= rows; i += TILE_ROWS)
        tile(TILE_ROWS, cols, depth, a + i * a_row, a_row, a_step, b, c + i * ldc, ldc, alpha,
             beta);
    const float *rest = a + i * a_row;
    float *to = c + i * ldc;
#define REST(count)                                                                                \
    case count:                                                                                    \
        tile(count, cols, depth, rest, a_row, a_step, b, to, ldc, alpha, beta);                    \
        break;
    switch (rows - i) {
        REST(5)
        REST(4)
        REST(3)
        REST(2)
        REST(1)
    default:
        break;
    }
#undef REST
}

static void panel_plain(size_t rows, size_t cols, size_t depth, const float *a, size_t lda,
                        const float *b, float *c, size_t ldc, float alpha, float beta)
{
    if (cols == TILE_COLS)
        panel(rows, TILE_COLS, depth, a, lda, 1, b, c, ldc, alpha, beta);
    else
        panel(rows, cols, depth, a, lda, 1, b, c, ldc, alpha, beta);
}

static void panel_transposed(size_t rows, size_t cols, size_t depth, const float *a, size_t lda,
                             const float *b, float *c, size_t ldc, float alpha, float beta)
{
    if (cols == TILE_COLS)
        panel(rows, TILE_COLS, depth, a, 1, lda, b, c, ldc, alpha, beta);
    else
        panel(rows, cols, depth, a, 1, lda, b, c, ldc, alpha, beta);
}

#define SHUFFLE(a, b, ...) UNI__SHUFFLE8(i8, a, b, __VA_ARGS__)
#define UNPACK_LOW 0, 8, 1, 9, 4, 12, 5, 13
#define UNPACK_HIGH 2, 10, 3, 11, 6, 14, 7, 15
#define PAIRS_LOW 0, 1, 8, 9, 4, 5, 12, 13
#define PAIRS_HIGH 2, 3, 10, 11, 6, 7, 14, 15
#define HALVES_LOW 0, 1, 2, 3, 8, 9, 10, 11
#define HALVES_HIGH 4, 5, 6, 7, 12, 13, 14, 15

/* to[j][i] = from[i][j] for 8 x 8 floats in registers; rows are `ld` and TILE_COLS floats apart. */
INLINE void transpose8(const float *from, size_t ld, float *to)
{
    v8 a[8], b[8];
    for (size_t i = 0; i < 8; i += 2) {
        v8 r0 = get8(from + i * ld), r1 = get8(from + (i + 1) * ld);
        a[i] = SHUFFLE(r0, r1, UNPACK_LOW);
        a[i + 1] = SHUFFLE(r0, r1, UNPACK_HIGH);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            b[i + 2 * j] = SHUFFLE(a[i + j], a[i + 2 + j], PAIRS_LOW);
            b[i + 2 * j + 1] = SHUFFLE(a[i + j], a[i + 2 + j], PAIRS_HIGH);
        }
    for (size_t i = 0; i < 4; i++) {
        put8(to + i * TILE_COLS, SHUFFLE(b[i], b[i + 4], HALVES_LOW));
        put8(to + (i + 4) * TILE_COLS, SHUFFLE(b[i], b[i + 4], HALVES_HIGH));
    }
}

/* packed[panel][depth][16] = op(b)[first .. first + depth, column .. column + cols], missing
 * columns 0 */
static void pack(const uni__product *g, size_t first, size_t depth, size_t column, size_t cols,
                 float *packed)
{
    size_t ldb = (size_t)g->ldb;
    for (size_t j = 0; j < cols; j += TILE_COLS, packed += depth * TILE_COLS) {
        size_t width = cols - j < TILE_COLS ? cols - j : TILE_COLS;
        if (width < TILE_COLS)
            memset(packed, 0, depth * TILE_COLS * sizeof(float));
        if (!g->transpose_b) {
            const float *from = g->b + first * ldb + column + j;
            if (width == TILE_COLS)
                for (size_t p = 0; p < depth; p++, from += ldb) {
                    put8(packed + p * TILE_COLS, get8(from));
                    put8(packed + p * TILE_COLS + 8, get8(from + 8));
                }
            else
                for (size_t p = 0; p < depth; p++, from += ldb)
                    memcpy(packed + p * TILE_COLS, from, width * sizeof(float));
            continue;
        }
        const float *from = g->b + (column + j) * ldb + first;
        /* Eight of each of b's rows at a time, so that each line is read once. */
        for (size_t p = 0; p < depth; p += 8) {
            size_t part = eight_of(depth - p);
            if (part == 8 && width == TILE_COLS) {
                transpose8(from + p, ldb, packed + p * TILE_COLS);
                transpose8(from + 8 * ldb + p, ldb, packed + p * TILE_COLS + 8);
                continue;
            }
            for (size_t k = 0; k < width; k++)
                for (size_t q = 0; q < part; q++)
                    packed[(p + q) * TILE_COLS + k] = from[k * ldb + p + q];
        }
    }
}

/* Prefetches the source of the next block, a few lines at a time, while tiles of this one are
 * computed. Only when b is transposed, where its rows are adjacent. */
typedef struct ahead {
    const char *at, *end;
    size_t lines; /* per tile */
} ahead;

INLINE void look_ahead(ahead *next)
{
    for (size_t i = 0; i < next->lines && next->at < next->end; i++, next->at += 64)
        __builtin_prefetch(next->at, 0, 2);
}

static ahead ahead_of(const uni__product *g, size_t column, size_t cols)
{
    size_t n = (size_t)g->n, m = (size_t)g->m, bytes = (size_t)g->ldb * sizeof(float);
    size_t tiles = (m + TILE_ROWS - 1) / TILE_ROWS * ((cols + TILE_COLS - 1) / TILE_COLS);
    size_t end = column + WIDTH < n ? column + WIDTH : n;
    if (!g->transpose_b || g->k > DEPTH || g->k != g->ldb || column >= n)
        return (ahead){ 0 };
    return (ahead){ (const char *)g->b + column * bytes, (const char *)g->b + end * bytes,
                    (end - column) * bytes / 64 / tiles + 1 };
}

/* Tiles of `rows` rows by a group of panels that together fit the first-level cache: c is written
 * in runs of whole lines. */
static void group(const uni__product *g, size_t row, size_t rows, size_t first, size_t depth,
                  size_t cols, const float *packed, float *c, float alpha, float beta, ahead *next)
{
    size_t lda = (size_t)g->lda, ldc = (size_t)g->ldc;
    for (size_t i = 0; i < rows; i += TILE_ROWS) {
        size_t part = rows - i < TILE_ROWS ? rows - i : TILE_ROWS;
        for (size_t j = 0; j < cols; j += TILE_COLS) {
            look_ahead(next);
            size_t width = cols - j < TILE_COLS ? cols - j : TILE_COLS;
            const float *b = packed + j * depth;
            if (g->transpose_a)
                panel_transposed(part, width, depth, g->a + first * lda + row + i, lda, b,
                                 c + i * ldc + j, ldc, alpha, beta);
            else
                panel_plain(part, width, depth, g->a + (row + i) * lda + first, lda, b,
                            c + i * ldc + j, ldc, alpha, beta);
        }
    }
}

static void gemm(const uni__product *g, float *packed)
{
    size_t m = (size_t)g->m, n = (size_t)g->n, k = (size_t)g->k;
    float alpha = g->descent ? -g->descent->rate : 1, beta = g->descent ? g->descent->keep : g->add;
    for (size_t column = 0; column < n; column += WIDTH)
        for (size_t first = 0; first < k; first += DEPTH) {
            size_t cols = n - column < WIDTH ? n - column : WIDTH,
                   depth = k - first < DEPTH ? k - first : DEPTH;
            size_t step = DEPTH / depth * TILE_COLS;
            ahead next = ahead_of(g, column + WIDTH, cols);
            pack(g, first, depth, column, cols, packed);
            for (size_t row = 0; row < m; row += ROWS)
                for (size_t j = 0; j < cols; j += step)
                    group(g, row, m - row < ROWS ? m - row : ROWS, first, depth,
                          cols - j < step ? cols - j : step, packed + j * depth,
                          g->c + row * (size_t)g->ldc + column + j, alpha, first > 0 ? 1 : beta,
                          &next);
        }
}
