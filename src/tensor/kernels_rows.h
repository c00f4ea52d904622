/*
 * kernels_rows.h - second part of the fast loops: reductions, softmax, normalization, columns.
 * Included after kernels_simd.h. Long sums are made in blocks, so that the error does not grow with
 * the length.
 */

static float row_sum(const float *x, size_t n)
{
    double total = 0;
    for (size_t first = 0; first < n; first += 4096) {
        size_t count = n - first < 4096 ? n - first : 4096;
        v8 a = splat(0), b = splat(0);
        size_t i = 0;
        for (; i + 16 <= count; i += 16) {
            a += get8(x + first + i);
            b += get8(x + first + i + 8);
        }
        for (; i < count; i += 8)
            a += get(x + first + i, count - i < 8 ? count - i : 8);
        total += sum8(a + b);
    }
    return (float)total;
}

static float row_max(const float *x, size_t n)
{
    float best = x[0];
    size_t i = 0;
    if (n >= 8) {
        v8 most = get8(x);
        for (; i + 8 <= n; i += 8)
            most = max8(get8(x + i), most);
        best = largest8(most);
    }
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

INLINE void sum_tile(const float *x, float *y, size_t middle, size_t inner, float factor, bool add,
                     int vectors, size_t m)
{
    v8 total[8];
    for (int v = 0; v < vectors; v++)
        total[v] = splat(0);
    for (size_t first = 0; first < middle; first += ROW_BLOCK) {
        size_t last = first + ROW_BLOCK < middle ? first + ROW_BLOCK : middle;
        v8 sum[8];
        for (int v = 0; v < vectors; v++)
            sum[v] = splat(0);
        for (size_t r = first; r < last; r++)
            for (int v = 0; v < vectors; v++)
                sum[v] += get(x + r * inner + 8 * v, m);
        for (int v = 0; v < vectors; v++)
            total[v] += sum[v];
    }
    for (int v = 0; v < vectors; v++)
        put(y + 8 * v, m, factor * total[v] + (add ? get(y + 8 * v, m) : splat(0)));
}

/* y[inner] (+)= sum over middle of x[middle, inner] times factor */
static void sum_middle(const float *x, float *y, size_t middle, size_t inner, float factor,
                       bool add)
{
#define TILE(c, vectors, m) sum_tile(x + (c), y + (c), middle, inner, factor, add, vectors, m)
    EACH_TILE(inner, TILE);
#undef TILE
}

static void reduce(uni_reduce kind, const float *x, float *y, size_t outer, size_t middle,
                   size_t inner, bool add)
{
    if (kind == UNI_REDUCE_MAX || kind == UNI_REDUCE_MIN || middle == 0) {
        uni__tensor_kernels_reference.reduce(kind, x, y, outer, middle, inner, add);
        return;
    }
    float factor = kind == UNI_REDUCE_MEAN ? 1.0f / (float)middle : 1.0f;
    for (size_t o = 0; o < outer; o++, x += middle * inner, y += inner) {
        if (inner == 1)
            y[0] = (add ? y[0] : 0) + factor * row_sum(x, middle);
        else
            sum_middle(x, y, middle, inner, factor, add);
    }
}

static void softmax(const float *x, float *y, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++, x += cols, y += cols) {
        float most = row_max(x, cols);
        v8 sum = splat(0);
        EACH8(cols)
        {
            v8 e = exp8(get(x + i, m) - most);
            put(y + i, m, e);
            if (m < 8)
                e = get(y + i, m);
            sum += e;
        }
        float factor = 1.0f / sum8(sum);
        EACH8(cols) put(y + i, m, get(y + i, m) * factor);
    }
}

static void softmax_backward(const float *y, const float *dy, float *dx, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++, y += cols, dy += cols, dx += cols) {
        v8 dot = splat(0);
        EACH8(cols) dot += get(y + i, m) * get(dy + i, m);
        float total = sum8(dot);
        EACH8(cols) put(dx + i, m, get(y + i, m) * (get(dy + i, m) - total));
    }
}

static void log_softmax(const float *x, float *y, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++, x += cols, y += cols) {
        float most = row_max(x, cols);
        float sum = 0;
        for (size_t i = 0; i < cols; i += 8) {
            size_t m = cols - i < 8 ? cols - i : 8;
            float e[8];
            put8(e, exp8(get(x + i, m) - most));
            for (size_t j = 0; j < m; j++)
                sum += e[j];
        }
        float offset = most + logf(sum);
        EACH8(cols) put(y + i, m, get(x + i, m) - offset);
    }
}

static void log_softmax_backward(const float *y, const float *dy, float *dx, size_t rows,
                                 size_t cols)
{
    for (size_t r = 0; r < rows; r++, y += cols, dy += cols, dx += cols) {
        float total = row_sum(dy, cols);
        EACH8(cols) put(dx + i, m, get(dy + i, m) - exp8(get(y + i, m)) * total);
    }
}

static void layer_norm(const float *x, const float *gamma, const float *beta, float *y, float *mean,
                       float *rstd, size_t rows, size_t cols, float epsilon)
{
    for (size_t r = 0; r < rows; r++, x += cols, y += cols) {
        float average = row_sum(x, cols) / (float)cols;
        v8 squares = splat(0);
        size_t whole = cols / 8 * 8;
        for (size_t i = 0; i < whole; i += 8) {
            v8 d = get8(x + i) - average;
            squares += d * d;
        }
        float variance = sum8(squares);
        for (size_t i = whole; i < cols; i++)
            variance += (x[i] - average) * (x[i] - average);
        float factor = 1.0f / sqrtf(variance / (float)cols + epsilon);
        mean[r] = average;
        rstd[r] = factor;
        EACH8(cols)
        {
            v8 v = (get(x + i, m) - average) * factor;
            if (gamma)
                v *= get(gamma + i, m);
            if (beta)
                v += get(beta + i, m);
            put(y + i, m, v);
        }
    }
}

static void layer_norm_backward(const float *x, const float *gamma, const float *mean,
                                const float *rstd, const float *dy, float *dx, bool add,
                                float *dgamma, float *dbeta, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++, x += cols, dy += cols) {
        float average = mean[r], factor = rstd[r];
        v8 sum = splat(0), dot = splat(0);
        EACH8(cols)
        {
            v8 d = get(dy + i, m);
            v8 hat = (get(x + i, m) - average) * factor;
            if (dgamma)
                put(dgamma + i, m, get(dgamma + i, m) + d * hat);
            if (dbeta)
                put(dbeta + i, m, get(dbeta + i, m) + d);
            if (gamma)
                d *= get(gamma + i, m);
            sum += d; /* the missing lanes of d are 0 */
            dot += d * hat;
        }
        if (!dx)
            continue;
        float s = sum8(sum) / (float)cols, t = sum8(dot) / (float)cols;
        EACH8(cols)
        {
            v8 d = get(dy + i, m);
            if (gamma)
                d *= get(gamma + i, m);
            v8 hat = (get(x + i, m) - average) * factor;
            v8 v = factor * (d - s - hat * t);
            put(dx + i, m, add ? get(dx + i, m) + v : v);
        }
        dx += cols;
    }
}

/* sums += x (or dy), products += (x - from)^2 (or dy (x - from)) */
INLINE void moments_tile(const float *x, const float *from, const float *dy, float *sums,
                         float *products, size_t rows, size_t cols, int vectors, size_t m)
{
    v8 total[4], total_product[4];
    for (int v = 0; v < vectors; v++)
        total[v] = total_product[v] = splat(0);
    for (size_t first = 0; first < rows; first += ROW_BLOCK) {
        size_t last = first + ROW_BLOCK < rows ? first + ROW_BLOCK : rows;
        v8 sum[4], product[4];
        for (int v = 0; v < vectors; v++)
            sum[v] = product[v] = splat(0);
        for (size_t r = first; r < last; r++)
            for (int v = 0; v < vectors; v++) {
                v8 value = get(x + r * cols + 8 * v, m);
                v8 distance = from ? value - get(from + 8 * v, m) : value;
                v8 d = dy ? get(dy + r * cols + 8 * v, m) : value;
                sum[v] += d;
                product[v] += (dy ? d : distance) * distance;
            }
        for (int v = 0; v < vectors; v++) {
            total[v] += sum[v];
            total_product[v] += product[v];
        }
    }
    for (int v = 0; v < vectors; v++) {
        put(sums + 8 * v, m, get(sums + 8 * v, m) + total[v]);
        put(products + 8 * v, m, get(products + 8 * v, m) + total_product[v]);
    }
}

INLINE void moments(const float *x, const float *from, const float *dy, float *sums,
                    float *products, size_t rows, size_t cols)
{
    size_t c = 0;
    for (; c + 32 <= cols; c += 32)
        moments_tile(x + c, from ? from + c : NULL, dy ? dy + c : NULL, sums + c, products + c,
                     rows, cols, 4, 8);
    for (; c < cols; c += 8)
        moments_tile(x + c, from ? from + c : NULL, dy ? dy + c : NULL, sums + c, products + c,
                     rows, cols, 1, eight_of(cols - c));
}

static void column_moments(const float *x, const float *shift, float *sums, float *squares,
                           size_t rows, size_t cols)
{
    moments(x, shift, NULL, sums, squares, rows, cols);
}

static void column_products(const float *x, const float *mean, const float *dy, float *sums,
                            float *products, size_t rows, size_t cols)
{
    moments(x, mean, dy, sums, products, rows, cols);
}

static void column_affine(const float *x, const float *factor, const float *shift, float *y,
                          size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++, x += cols, y += cols)
        EACH8(cols) put(y + i, m, get(x + i, m) * get(factor + i, m) + get(shift + i, m));
}

static void column_combine(const float *x, const float *dy, const float *a, const float *b,
                           const float *c, float *dx, bool add, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++, x += cols, dy += cols, dx += cols)
        EACH8(cols)
        {
            v8 v = get(dy + i, m) * get(a + i, m) + get(x + i, m) * get(b + i, m) + get(c + i, m);
            put(dx + i, m, add ? get(dx + i, m) + v : v);
        }
}

static void max_merge(const float *x, float *y, int32_t *where, int32_t index, size_t n)
{
    SIMPLE_LOOP
    {
        bool larger = x[i] > y[i];
        y[i] = larger ? x[i] : y[i];
        where[i] = larger ? index : where[i];
    }
}
