/*
 * kernels_winograd.h - 3 x 3 convolutions by Winograd's F(2 x 2, 3 x 3). Included after
 * kernels_gemm.h by kernels_avx2.c only.
 *
 * Four results of a tile of 4 x 4 inputs take 16 multiplications per pair of channels instead of
 * 36: with the matrices
 *     B^T = | 1  0 -1  0 |    G = |  1    0    0  |    A^T = | 1  1  1  0 |
 *           | 0  1  1  0 |        | 1/2  1/2  1/2 |          | 0  1 -1 -1 |
 *           | 0 -1  1  0 |        | 1/2 -1/2  1/2 |
 *           | 0  1  0 -1 |        |  0    0    1  |
 * y = A^T [ (G g G^T) (B^T d B) ] A, where the product in brackets is elementwise and summed over
 * channels: 16 matrix products of tiles by channels. The gradient of the kernel is G^T [ sum over
 * tiles of (B^T d B) (A dy A^T) ] G, with 16 products as well. Entries are only 0, 1 and 1/2, so
 * rounding errors are within a small factor of those of the direct sum (kernels_test.c). Tiles are
 * processed in blocks whose transforms stay in the second-level cache.
 *
 *   V [16][tiles][in]             inputs
 *   U [16][out / 16][in][16]      kernel
 *   M [16][tiles][out]            results
 *   D [16][out / 16][tiles][16]   gradients of results
 */

/* Transforms four values along one axis by B^T. */
#define WINOGRAD_B(T0, T1, T2, T3, D0, D1, D2, D3)                                                 \
    (T0 = D0 - D2, T1 = D1 + D2, T2 = D2 - D1, T3 = D1 - D3)

/* One tile: d is its first corner, `row` floats from row to row, `pixel` from column to column. */
INLINE void winograd_input(const float *d, size_t row, size_t pixel, float *v, size_t plane,
                           size_t in)
{
    for (size_t c = 0; c < in; c += 8) {
        v8 t[4][4];
        for (int j = 0; j < 4; j++) {
            const float *at = d + (size_t)j * pixel + c;
            v8 d0 = get8(at), d1 = get8(at + row), d2 = get8(at + 2 * row), d3 = get8(at + 3 * row);
            WINOGRAD_B(t[0][j], t[1][j], t[2][j], t[3][j], d0, d1, d2, d3);
        }
        for (int i = 0; i < 4; i++) {
            v8 a, b, e, f;
            WINOGRAD_B(a, b, e, f, t[i][0], t[i][1], t[i][2], t[i][3]);
            float *to = v + (size_t)i * 4 * plane + c;
            put8(to, a);
            put8(to + plane, b);
            put8(to + 2 * plane, e);
            put8(to + 3 * plane, f);
        }
    }
}

typedef struct winograd_place {
    int64_t n, row, col; /* of the tile's first result */
} winograd_place;

INLINE winograd_place winograd_tile(const uni__winograd *w, size_t tile)
{
    size_t cols = (size_t)(w->conv.out_width + 1) / 2, rows = (size_t)(w->conv.out_height + 1) / 2;
    return (winograd_place){ (int64_t)(tile / (rows * cols)), (int64_t)(tile / cols % rows) * 2,
                             (int64_t)(tile % cols) * 2 };
}

/* A square of size x size pixels at (row, col), with zeros outside the image. */
static void winograd_patch(const float *image, int64_t height, int64_t width, size_t channels,
                           int64_t row, int64_t col, int size, float *patch)
{
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++, patch += channels) {
            int64_t h = row + i, x = col + j;
            if (h < 0 || h >= height || x < 0 || x >= width)
                memset(patch, 0, channels * sizeof(float));
            else
                memcpy(patch, image + (size_t)(h * width + x) * channels, channels * sizeof(float));
        }
}

/* V of the tiles [first, last). */
static void winograd_inputs(const uni__winograd *w, size_t first, size_t last, float *v,
                            float *patch)
{
    size_t in = (size_t)w->conv.in, plane = (last - first) * in;
    for (size_t tile = first; tile < last; tile++, v += in) {
        winograd_place at = winograd_tile(w, tile);
        const float *image = w->x + (size_t)(at.n * w->conv.height * w->conv.width) * in;
        int64_t row = at.row - w->conv.pad_top, col = at.col - w->conv.pad_left;
        if (row >= 0 && col >= 0 && row + 4 <= w->conv.height && col + 4 <= w->conv.width) {
            winograd_input(image + (size_t)(row * w->conv.width + col) * in,
                           (size_t)w->conv.width * in, in, v, plane, in);
            continue;
        }
        winograd_patch(image, w->conv.height, w->conv.width, in, row, col, 4, patch);
        winograd_input(patch, 4 * in, in, v, plane, in);
    }
}

/* c[rows, 16] (+)= a b for one panel. Rows go in sixes. When two would remain, the last eight rows
 * go in two fours, whose sums keep the units busy. */
INLINE void winograd_product(size_t rows, size_t depth, const float *a, size_t a_row, size_t a_step,
                             const float *b, float *c, size_t ldc, float beta)
{
    while (rows > 0) {
        if (rows >= 6 && rows != 8) {
            tile(6, 16, depth, a, a_row, a_step, b, c, ldc, 1, beta);
            a += 6 * a_row, c += 6 * ldc, rows -= 6;
        } else if (rows >= 4) {
            tile(4, 16, depth, a, a_row, a_step, b, c, ldc, 1, beta);
            a += 4 * a_row, c += 4 * ldc, rows -= 4;
        } else {
            tile(1, 16, depth, a, a_row, a_step, b, c, ldc, 1, beta);
            a += a_row, c += ldc, rows--;
        }
    }
}

/* The four results of one tile, for eight channels. */
INLINE void winograd_result(const float *m, size_t plane, v8 y[2][2])
{
    v8 t[2][4];
    for (int j = 0; j < 4; j++) {
        v8 m0 = get8(m + (size_t)j * plane), m1 = get8(m + (size_t)(4 + j) * plane),
           m2 = get8(m + (size_t)(8 + j) * plane), m3 = get8(m + (size_t)(12 + j) * plane);
        t[0][j] = m0 + m1 + m2;
        t[1][j] = m1 - m2 - m3;
    }
    for (int i = 0; i < 2; i++) {
        y[i][0] = t[i][0] + t[i][1] + t[i][2];
        y[i][1] = t[i][1] - t[i][2] - t[i][3];
    }
}

static void winograd_results(const uni__winograd *w, size_t first, size_t last, const float *m)
{
    size_t out = (size_t)w->conv.out, plane = (last - first) * out;
    for (size_t tile = first; tile < last; tile++, m += out) {
        winograd_place at = winograd_tile(w, tile);
        float *to =
            w->y +
            (size_t)((at.n * w->conv.out_height + at.row) * w->conv.out_width + at.col) * out;
        int rows = at.row + 1 < w->conv.out_height ? 2 : 1,
            cols = at.col + 1 < w->conv.out_width ? 2 : 1;
        for (size_t k = 0; k < out; k += 8) {
            v8 y[2][2], bias = w->bias ? get8(w->bias + k) : splat(0);
            winograd_result(m + k, plane, y);
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < cols; j++) {
                    v8 value = y[i][j] + bias;
                    if (w->conv.relu)
                        value = pick(value < 0, splat(0), value);
                    put8(to + ((size_t)i * (size_t)w->conv.out_width + (size_t)j) * out + k, value);
                }
        }
    }
}

static void winograd_forward(const uni__winograd *w, size_t begin, size_t end, float *scratch)
{
    size_t in = (size_t)w->conv.in, out = (size_t)w->conv.out;
    float *v = scratch, *m = v + 16 * w->block * in, *patch = m + 16 * w->block * out;
    for (size_t first = begin; first < end; first += w->block) {
        size_t last = first + w->block < end ? first + w->block : end, tiles = last - first;
        winograd_inputs(w, first, last, v, patch);
        for (size_t f = 0; f < 16; f++)
            for (size_t k = 0; k < out; k += 16)
                winograd_product(tiles, in, v + f * tiles * in, in, 1, w->u + (f * out + k) * in,
                                 m + f * tiles * out + k, out, 0);
        winograd_results(w, first, last, m);
    }
}

/* G g G^T for eight result channels; g: `step` floats from tap to tap. */
static void winograd_kernel(const float *kernel, size_t in, size_t out, float *u)
{
    size_t step = in * out;
    for (size_t c = 0; c < in; c++)
        for (size_t k = 0; k < out; k += 8) {
            v8 t[4][3];
            for (size_t j = 0; j < 3; j++) {
                const float *g = kernel + j * step + c * out + k;
                v8 g0 = get8(g), g1 = get8(g + 3 * step), g2 = get8(g + 6 * step);
                t[0][j] = g0;
                t[1][j] = 0.5f * (g0 + g1 + g2);
                t[2][j] = 0.5f * (g0 - g1 + g2);
                t[3][j] = g2;
            }
            for (size_t i = 0; i < 4; i++) {
                v8 row[4] = { t[i][0], 0.5f * (t[i][0] + t[i][1] + t[i][2]),
                              0.5f * (t[i][0] - t[i][1] + t[i][2]), t[i][2] };
                for (size_t j = 0; j < 4; j++)
                    put8(u + (((i * 4 + j) * out + k / 16 * 16) * in + c * 16) + k % 16, row[j]);
            }
        }
}

/* A dy A^T of the tiles [first, last), into panels. */
static void winograd_gradients(const uni__winograd *w, size_t first, size_t last, float *d,
                               float *patch)
{
    size_t out = (size_t)w->conv.out, tiles = last - first, plane = tiles * out;
    for (size_t tile = first; tile < last; tile++, d += 16) {
        winograd_place at = winograd_tile(w, tile);
        const float *image = w->dy + (size_t)(at.n * w->conv.out_height * w->conv.out_width) * out,
                    *dy;
        size_t row = (size_t)w->conv.out_width * out;
        dy = image + (size_t)(at.row * w->conv.out_width + at.col) * out;
        if (at.row + 2 > w->conv.out_height || at.col + 2 > w->conv.out_width) {
            winograd_patch(image, w->conv.out_height, w->conv.out_width, out, at.row, at.col, 2,
                           patch);
            dy = patch;
            row = 2 * out;
        }
        for (size_t k = 0; k < out; k += 8) {
            v8 a = get8(dy + k), b = get8(dy + out + k), c = get8(dy + row + k),
               e = get8(dy + row + out + k);
            v8 left[4] = { a, a + c, a - c, -c }, right[4] = { b, b + e, b - e, -e };
            float *to = d + k / 16 * 16 * tiles + k % 16;
            for (size_t i = 0; i < 4; i++) {
                put8(to + (i * 4) * plane, left[i]);
                put8(to + (i * 4 + 1) * plane, left[i] + right[i]);
                put8(to + (i * 4 + 2) * plane, left[i] - right[i]);
                put8(to + (i * 4 + 3) * plane, -right[i]);
            }
        }
    }
}

static void winograd_weights(const uni__winograd *w, size_t begin, size_t end, float *scratch,
                             float *du)
{
    size_t in = (size_t)w->conv.in, out = (size_t)w->conv.out;
    float *v = scratch, *d = v + 16 * w->block * in, *patch = d + 16 * w->block * out;
    if (begin >= end)
        memset(du, 0, 16 * in * out * sizeof(float));
    for (size_t first = begin; first < end; first += w->block) {
        size_t last = first + w->block < end ? first + w->block : end, tiles = last - first;
        winograd_inputs(w, first, last, v, patch);
        winograd_gradients(w, first, last, d, patch);
        for (size_t f = 0; f < 16; f++)
            for (size_t k = 0; k < out; k += 16)
                winograd_product(in, tiles, v + f * tiles * in, 1, in, d + (f * out + k) * tiles,
                                 du + f * in * out + k, out, first > begin);
    }
}

/* G^T du G: the gradient of the kernel. */
static void winograd_kernel_back(const float *du, size_t in, size_t out, float *dkernel)
{
    size_t step = in * out;
    for (size_t at = 0; at < step; at += 8) {
        v8 t[3][4];
        for (size_t j = 0; j < 4; j++) {
            v8 u0 = get8(du + j * step + at), u1 = get8(du + (4 + j) * step + at),
               u2 = get8(du + (8 + j) * step + at), u3 = get8(du + (12 + j) * step + at);
            t[0][j] = u0 + 0.5f * (u1 + u2);
            t[1][j] = 0.5f * (u1 - u2);
            t[2][j] = u3 + 0.5f * (u1 + u2);
        }
        for (size_t i = 0; i < 3; i++) {
            float *to = dkernel + i * 3 * step + at;
            put8(to, t[i][0] + 0.5f * (t[i][1] + t[i][2]));
            put8(to + step, 0.5f * (t[i][1] - t[i][2]));
            put8(to + 2 * step, t[i][3] + 0.5f * (t[i][1] + t[i][2]));
        }
    }
}
