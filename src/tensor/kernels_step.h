/*
 * kernels_step.h - third part of the fast loops: dropout, random numbers, pointwise losses,
 * optimizer updates, and the table. Included after kernels_rows.h.
 */

#define LANES 8

typedef uint32_t u8 __attribute__((vector_size(4 * LANES)));

/* high and low words of the products of eight 32-bit numbers with `factor` */
INLINE void multiply_wide(u8 x, uint32_t factor, u8 *high, u8 *low)
{
#ifdef SIMD_BLEND
    /* The instruction multiplies every other lane. The compiler does not generate it for any form
     * of the loop below (30 ns per block against 6). */
    typedef int s8 __attribute__((vector_size(4 * LANES)));
    typedef uint64_t wide __attribute__((vector_size(4 * LANES)));
    s8 by = (s8)((u8){ 0 } + factor);
    wide even = (wide)__builtin_ia32_pmuludq256((s8)x, by);
    wide odd = (wide)__builtin_ia32_pmuludq256((s8)((wide)x >> 32), by);
    *high = (u8)UNI__SHUFFLE8(s8, (s8)even, (s8)odd, 1, 9, 3, 11, 5, 13, 7, 15);
    *low = (u8)UNI__SHUFFLE8(s8, (s8)even, (s8)odd, 0, 8, 2, 10, 4, 12, 6, 14);
#else
    for (int j = 0; j < LANES; j++) {
        uint64_t product = (uint64_t)factor * x[j];
        (*high)[j] = (uint32_t)(product >> 32);
        (*low)[j] = (uint32_t)product;
    }
#endif
}

/* Philox 4x32-10 of LANES blocks; the first word of each counter differs by the lane number. */
static void philox_lanes(uint32_t out[4][LANES], const uint32_t counter[4], uint32_t k0,
                         uint32_t k1)
{
    const u8 zero = { 0 }, number = { 0, 1, 2, 3, 4, 5, 6, 7 };
    u8 c0 = counter[0] + number, c1 = counter[1] + zero, c2 = counter[2] + zero,
       c3 = counter[3] + zero;
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        u8 high0, low0, high2, low2;
        multiply_wide(c0, 0xD2511F53u, &high0, &low0);
        multiply_wide(c2, 0xCD9E8D57u, &high2, &low2);
        c0 = high2 ^ c1 ^ k0;
        c2 = high0 ^ c3 ^ k1;
        c1 = low2;
        c3 = low0;
    }
    memcpy(out[0], &c0, sizeof c0);
    memcpy(out[1], &c1, sizeof c1);
    memcpy(out[2], &c2, sizeof c2);
    memcpy(out[3], &c3, sizeof c3);
}

/* Element e of a row uses block e / 64 * 8 + e % 8, draw e / 8 % 8, so that eight neighbors come
 * from eight lanes. */
static void dropout(const float *x, float *y, size_t rows, size_t cols, const uni__dropout *d)
{
    for (size_t r = 0; r < rows; r++, x += cols, y += cols)
        for (size_t begin = 0; begin < cols; begin += 64) {
            uint32_t draws[4][LANES];
            float keep[64];
            const uint32_t counter[4] = { (uint32_t)(begin / 64 * 8), (uint32_t)(d->first + r),
                                          d->step, d->stream };
            philox_lanes(draws, counter, (uint32_t)d->seed, (uint32_t)(d->seed >> 32));
            for (int w = 0; w < 4; w++)
                for (int j = 0; j < LANES; j++) {
                    keep[w * 16 + j] =
                        (draws[w][j] & 0xffff) >= d->threshold ? d->keep_scale : 0.0f;
                    keep[w * 16 + 8 + j] =
                        (draws[w][j] >> 16) >= d->threshold ? d->keep_scale : 0.0f;
                }
            size_t n = cols - begin < 64 ? cols - begin : 64;
            SIMPLE_LOOP y[begin + i] = x[begin + i] * keep[i];
        }
}

/* Element 4 b + w of the stream is word w of block b; `first` is the block of out[0]. */
static void uniform(float *out, size_t n, uint64_t first, const uni__uniform *u)
{
    double width = u->high - u->low;
    for (size_t begin = 0; begin < n; begin += 4 * LANES) {
        uint64_t block = first + begin / 4;
        uint32_t words[4][LANES];
        float values[4 * LANES];
        const uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32), u->stream[0],
                                      u->stream[1] };
        philox_lanes(words, counter, u->key[0], u->key[1]);
        for (int w = 0; w < 4; w++)
            for (int j = 0; j < LANES; j++)
                values[4 * j + w] = (float)(u->low + width * (words[w][j] * 0x1p-32));
        memcpy(out + begin, values, (n - begin < 4 * LANES ? n - begin : 4 * LANES) * sizeof *out);
    }
}

#define EPSILON 1e-7f

INLINE v8 loss_term(uni_loss_kind kind, v8 t, v8 p, float parameter)
{
    v8 e = p - t;
    switch (kind) {
    case UNI_LOSS_MSE:
        return e * e;
    case UNI_LOSS_MAE:
        return abs8(e);
    case UNI_LOSS_HUBER: {
        v8 a = abs8(e);
        return pick(a <= parameter, 0.5f * e * e, parameter * (a - 0.5f * parameter));
    }
    case UNI_LOSS_BINARY: {
        t = t * (1.0f - parameter) + 0.5f * parameter;
        v8 c =
            pick(p < EPSILON, splat(EPSILON), pick(p > 1.0f - EPSILON, splat(1.0f - EPSILON), p));
        return -(t * log8(c) + (1.0f - t) * log8(1.0f - c));
    }
    case UNI_LOSS_BINARY_LOGITS:
        t = t * (1.0f - parameter) + 0.5f * parameter;
        return max8(p, splat(0)) - p * t + log1p8(exp_negative8(-abs8(p)));
    case UNI_LOSS_HINGE:
        return max8(splat(0), 1.0f - t * p);
    case UNI_LOSS_SQUARED_HINGE: {
        v8 h = max8(splat(0), 1.0f - t * p);
        return h * h;
    }
    default: { /* KL */
        v8 a = pick(t < EPSILON, splat(EPSILON), pick(t > 1.0f, splat(1), t));
        v8 b = pick(p < EPSILON, splat(EPSILON), pick(p > 1.0f, splat(1), p));
        return a * log8(a / b);
    }
    }
}

INLINE v8 loss_slope(uni_loss_kind kind, v8 t, v8 p, float parameter)
{
    v8 e = p - t, zero = splat(0);
    switch (kind) {
    case UNI_LOSS_MSE:
        return 2.0f * e;
    case UNI_LOSS_MAE:
        return pick(e > 0, splat(1), pick(e < 0, splat(-1), zero));
    case UNI_LOSS_HUBER:
        return pick(e > parameter, splat(parameter), pick(e < -parameter, splat(-parameter), e));
    case UNI_LOSS_BINARY: {
        t = t * (1.0f - parameter) + 0.5f * parameter;
        i8 inside = (p >= EPSILON) & (p <= 1.0f - EPSILON);
        v8 c = pick(inside, p, splat(0.5f));
        return pick(inside, (c - t) / (c * (1.0f - c)), zero);
    }
    case UNI_LOSS_BINARY_LOGITS:
        return sigmoid8(p) - (t * (1.0f - parameter) + 0.5f * parameter);
    case UNI_LOSS_HINGE:
        return pick(t * p < 1.0f, -t, zero);
    case UNI_LOSS_SQUARED_HINGE:
        return pick(t * p < 1.0f, -2.0f * t * (1.0f - t * p), zero);
    default: {
        v8 a = pick(t < EPSILON, splat(EPSILON), pick(t > 1.0f, splat(1), t));
        return pick((p >= EPSILON) & (p <= 1.0f), -a / p, zero);
    }
    }
}

#define POINTWISE(X)                                                                               \
    X(MSE) X(MAE) X(HUBER) X(BINARY) X(BINARY_LOGITS) X(HINGE) X(SQUARED_HINGE) X(KL)

INLINE void loss_rows(uni_loss_kind kind, const float *t, const float *p, float *out, size_t rows,
                      size_t cols, float parameter)
{
    float factor = kind == UNI_LOSS_KL ? 1.0f : 1.0f / (float)cols;
    size_t whole = cols / 8 * 8;
    if (cols == 1) { /* one output: eight samples at a time */
        EACH8(rows) put(out + i, m, loss_term(kind, get(t + i, m), get(p + i, m), parameter));
        return;
    }
    for (size_t r = 0; r < rows; r++, t += cols, p += cols) {
        v8 sum = splat(0);
        for (size_t i = 0; i < whole; i += 8)
            sum += loss_term(kind, get8(t + i), get8(p + i), parameter);
        float total = sum8(sum);
        if (whole < cols) {
            float rest[8];
            put8(rest, loss_term(kind, get(t + whole, cols - whole), get(p + whole, cols - whole),
                                 parameter));
            for (size_t i = 0; i < cols - whole; i++)
                total += rest[i];
        }
        out[r] = total * factor;
    }
}

static void pointwise_loss(uni_loss_kind kind, const float *target, const float *prediction,
                           float *out, size_t rows, size_t cols, float parameter)
{
    switch (kind) {
#define ONE(K)                                                                                     \
    case UNI_LOSS_##K:                                                                             \
        loss_rows(UNI_LOSS_##K, target, prediction, out, rows, cols, parameter);                   \
        break;
        POINTWISE(ONE)
#undef ONE
    default:
        break;
    }
}

INLINE void loss_rows_backward(uni_loss_kind kind, const float *t, const float *p,
                               const float *dout, float *dp, size_t rows, size_t cols,
                               float parameter)
{
    float factor = kind == UNI_LOSS_KL ? 1.0f : 1.0f / (float)cols;
    if (cols == 1) {
        EACH8(rows)
        put(dp + i, m,
            get(dout + i, m) * loss_slope(kind, get(t + i, m), get(p + i, m), parameter));
        return;
    }
    for (size_t r = 0; r < rows; r++, t += cols, p += cols, dp += cols) {
        float d = dout[r] * factor;
        EACH8(cols)
        put(dp + i, m, d * loss_slope(kind, get(t + i, m), get(p + i, m), parameter));
    }
}

static void pointwise_loss_backward(uni_loss_kind kind, const float *target,
                                    const float *prediction, const float *dout, float *dprediction,
                                    size_t rows, size_t cols, float parameter)
{
    switch (kind) {
#define ONE(K)                                                                                     \
    case UNI_LOSS_##K:                                                                             \
        loss_rows_backward(UNI_LOSS_##K, target, prediction, dout, dprediction, rows, cols,        \
                           parameter);                                                             \
        break;
        POINTWISE(ONE)
#undef ONE
    default:
        break;
    }
}

static void sgd(float *w, const float *g, size_t n, float lr, float factor, float decay)
{
    float step = lr * factor, keep = 1.0f - decay;
    SIMPLE_LOOP w[i] = w[i] * keep - step * g[i];
}

static void momentum(float *w, float *v, const float *g, size_t n, float lr, float beta,
                     bool nesterov, float factor, float decay)
{
    float step = lr * factor, keep = 1.0f - decay;
    if (nesterov)
        SIMPLE_LOOP
        {
            float d = step * g[i];
            v[i] = beta * v[i] - d;
            w[i] = w[i] * keep + (beta * v[i] - d);
        }
    else
        SIMPLE_LOOP
        {
            v[i] = beta * v[i] - step * g[i];
            w[i] = w[i] * keep + v[i];
        }
}

static void adam(float *w, float *first, float *second, float *most, const float *g, size_t n,
                 const uni__adam *a)
{
    float p = (float)(1 - a->beta_1), q = (float)(1 - a->beta_2), keep = 1.0f - a->decay;
    float alpha = a->alpha, epsilon = a->epsilon, factor = a->scale;
    if (most)
        SIMPLE_LOOP
        {
            float d = g[i] * factor;
            first[i] += (d - first[i]) * p;
            second[i] += (d * d - second[i]) * q;
            most[i] = second[i] > most[i] ? second[i] : most[i];
            w[i] = w[i] * keep - alpha * first[i] / (sqrtf(most[i]) + epsilon);
        }
    else
        SIMPLE_LOOP
        {
            float d = g[i] * factor;
            first[i] += (d - first[i]) * p;
            second[i] += (d * d - second[i]) * q;
            w[i] = w[i] * keep - alpha * first[i] / (sqrtf(second[i]) + epsilon);
        }
}

static void rmsprop(float *w, float *v, float *mean, float *momenta, const float *g, size_t n,
                    const uni__rmsprop *r)
{
    float rho = (float)r->rho, rest = (float)(1 - r->rho), keep = 1.0f - r->decay,
          factor = r->scale;
    float lr = r->lr, epsilon = r->epsilon, beta = r->momentum;
    for (size_t i = 0; i < n; i++) {
        float d = g[i] * factor;
        v[i] = rho * v[i] + rest * d * d;
        float under = v[i] + epsilon;
        if (mean) {
            mean[i] = rho * mean[i] + rest * d;
            under -= mean[i] * mean[i];
        }
        float step = lr * d / sqrtf(under);
        if (momenta)
            step = momenta[i] = beta * momenta[i] + step;
        w[i] = w[i] * keep - step;
    }
}

static void adagrad(float *w, float *sum, const float *g, size_t n, float lr, float epsilon,
                    float factor, float decay)
{
    float keep = 1.0f - decay;
    SIMPLE_LOOP
    {
        float d = g[i] * factor;
        sum[i] += d * d;
        w[i] = w[i] * keep - lr * d / sqrtf(sum[i] + epsilon);
    }
}

const uni__tensor_kernels KERNELS = {
    .name = KERNELS_NAME,
    UNI__TENSOR_KERNELS_HERE,
#ifdef KERNELS_PRODUCTS
    .gemm = gemm,
    .winograd_kernel = winograd_kernel,
    .winograd_forward = winograd_forward,
    .winograd_weights = winograd_weights,
    .winograd_kernel_back = winograd_kernel_back,
    .thin_forward = thin_forward,
    .thin_backward = thin_backward,
#endif
};
