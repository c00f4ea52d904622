/*
 * kernels_reference_step.h - the plain version of the parts of a step that are not layers: random
 * numbers, losses, optimizers. Included by kernels_reference.c only, as kernels_step.h is by the
 * fast versions. Shapes are in kernels.h.
 */

static void uniform(float *out, size_t n, uint64_t first, const uni__uniform *u)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t block = first + i / 4;
        uint32_t words[4],
            counter[4] = { (uint32_t)block, (uint32_t)(block >> 32), u->stream[0], u->stream[1] };
        uni__philox(counter, u->key, words);
        out[i] = (float)(u->low + (u->high - u->low) * (words[i % 4] * 0x1p-32));
    }
}

/* Element e of a row: block e / 64 * 8 + e % 8 of Philox, its 16-bit draw number e / 8 % 8. */
static void dropout(const float *x, float *y, size_t rows, size_t cols, const uni__dropout *d)
{
    const uint32_t key[2] = { (uint32_t)d->seed, (uint32_t)(d->seed >> 32) };
    for (size_t r = 0; r < rows; r++)
        for (size_t e = 0; e < cols; e++) {
            uint32_t counter[4] = { (uint32_t)(e / 64 * 8 + e % 8), (uint32_t)(d->first + r),
                                    d->step, d->stream };
            uint32_t words[4];
            uni__philox(counter, key, words);
            uint32_t draw = words[e / 16 % 4] >> (e / 8 % 2 * 16) & 0xffff;
            y[r * cols + e] = draw >= d->threshold ? x[r * cols + e] * d->keep_scale : 0;
        }
}

static void max_merge(const float *x, float *y, int32_t *where, int32_t index, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] > y[i]) {
            y[i] = x[i];
            where[i] = index;
        }
}

static double clip(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static const double epsilon = 1e-7;

static double loss_term(uni_loss_kind kind, double t, double p, double parameter)
{
    double e = p - t, smooth = t * (1 - parameter) + 0.5 * parameter;
    switch (kind) {
    case UNI_LOSS_MSE:
        return e * e;
    case UNI_LOSS_MAE:
        return fabs(e);
    case UNI_LOSS_HUBER:
        return fabs(e) <= parameter ? 0.5 * e * e : parameter * (fabs(e) - 0.5 * parameter);
    case UNI_LOSS_BINARY:
        p = clip(p, (float)epsilon, 1.0f - (float)epsilon);
        return -(smooth * log(p) + (1 - smooth) * log(1 - p));
    case UNI_LOSS_BINARY_LOGITS:
        return fmax(p, 0) - p * smooth + log1p(exp(-fabs(p)));
    case UNI_LOSS_HINGE:
        return t * p > 1 ? 0 : 1 - t * p; /* NaN stays */
    case UNI_LOSS_SQUARED_HINGE:
        return t * p > 1 ? 0 : (1 - t * p) * (1 - t * p);
    default:
        return clip(t, epsilon, 1) * log(clip(t, epsilon, 1) / clip(p, epsilon, 1));
    }
}

static double loss_slope(uni_loss_kind kind, double t, double p, double parameter)
{
    double e = p - t, smooth = t * (1 - parameter) + 0.5 * parameter;
    switch (kind) {
    case UNI_LOSS_MSE:
        return 2 * e;
    case UNI_LOSS_MAE:
        return e > 0 ? 1 : e < 0 ? -1 : 0;
    case UNI_LOSS_HUBER:
        return clip(e, -parameter, parameter);
    case UNI_LOSS_BINARY:
        return p >= (float)epsilon && p <= 1.0f - (float)epsilon ? (p - smooth) / (p * (1 - p)) : 0;
    case UNI_LOSS_BINARY_LOGITS:
        return sigmoid(p) - smooth;
    case UNI_LOSS_HINGE:
        return t * p < 1 ? -t : 0;
    case UNI_LOSS_SQUARED_HINGE:
        return t * p < 1 ? -2 * t * (1 - t * p) : 0;
    default:
        return p >= (float)epsilon && p <= 1 ? -clip(t, epsilon, 1) / p : 0;
    }
}

static void pointwise_loss(uni_loss_kind kind, const float *target, const float *prediction,
                           float *out, size_t rows, size_t cols, float parameter)
{
    for (size_t r = 0; r < rows; r++) {
        double sum = 0;
        for (size_t i = 0; i < cols; i++)
            sum += loss_term(kind, target[r * cols + i], prediction[r * cols + i], parameter);
        out[r] = (float)(kind == UNI_LOSS_KL ? sum : sum / (double)cols);
    }
}

static void pointwise_loss_backward(uni_loss_kind kind, const float *target,
                                    const float *prediction, const float *dout, float *dprediction,
                                    size_t rows, size_t cols, float parameter)
{
    for (size_t i = 0; i < rows * cols; i++)
        dprediction[i] =
            (float)(dout[i / cols] * loss_slope(kind, target[i], prediction[i], parameter) /
                    (kind == UNI_LOSS_KL ? 1 : (double)cols));
}

static void add_in_place(float *into, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        into[i] += from[i];
}

static void sgd(float *w, const float *g, size_t n, float lr, float factor, float decay)
{
    for (size_t i = 0; i < n; i++)
        w[i] = (float)(w[i] * (1.0 - decay) - (double)lr * factor * g[i]);
}

static void momentum(float *w, float *v, const float *g, size_t n, float lr, float beta,
                     bool nesterov, float factor, float decay)
{
    for (size_t i = 0; i < n; i++) {
        double d = (double)lr * factor * g[i];
        v[i] = (float)((double)beta * v[i] - d);
        w[i] = (float)(w[i] * (1.0 - decay) + (nesterov ? (double)beta * v[i] - d : v[i]));
    }
}

static void adam(float *w, float *first, float *second, float *most, const float *g, size_t n,
                 const uni__adam *a)
{
    for (size_t i = 0; i < n; i++) {
        double d = (double)g[i] * a->scale;
        first[i] = (float)(first[i] + (d - first[i]) * (1.0 - a->beta_1));
        second[i] = (float)(second[i] + (d * d - second[i]) * (1.0 - a->beta_2));
        if (most)
            most[i] = second[i] > most[i] ? second[i] : most[i];
        w[i] =
            (float)(w[i] * (1.0 - a->decay) -
                    (double)a->alpha * first[i] / (sqrt(most ? most[i] : second[i]) + a->epsilon));
    }
}

static void rmsprop(float *w, float *v, float *mean, float *momenta, const float *g, size_t n,
                    const uni__rmsprop *r)
{
    for (size_t i = 0; i < n; i++) {
        double d = (double)g[i] * r->scale;
        v[i] = (float)(r->rho * v[i] + (1.0 - r->rho) * d * d);
        if (mean)
            mean[i] = (float)(r->rho * mean[i] + (1.0 - r->rho) * d);
        double step = r->lr * d / sqrt(v[i] - (mean ? (double)mean[i] * mean[i] : 0) + r->epsilon);
        if (momenta)
            step = momenta[i] = (float)((double)r->momentum * momenta[i] + step);
        w[i] = (float)(w[i] * (1.0 - r->decay) - step);
    }
}

static void adagrad(float *w, float *sum, const float *g, size_t n, float lr, float small,
                    float factor, float decay)
{
    for (size_t i = 0; i < n; i++) {
        double d = (double)g[i] * factor;
        sum[i] = (float)(sum[i] + d * d);
        w[i] = (float)(w[i] * (1.0 - decay) - lr * d / sqrt((double)sum[i] + small));
    }
}
