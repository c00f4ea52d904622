/*
 * kernels_reference.c - the plain version of every inner loop: one line of mathematics each, libm, in double. Tests compare the fast
 * tables with this one, and the tape option `reference` runs it. See kernels.h for the shapes. Any thread.
 */
#include <math.h>
#include <string.h>
#include "base/random.h"
#include "tensor/kernels.h"

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double function(uni_activation kind, double alpha, double x)
{
    switch (kind) {
    case UNI_ACTIVATION_RELU:
        return x < 0 ? 0 : x;
    case UNI_ACTIVATION_LEAKY_RELU:
        return x < 0 ? alpha * x : x;
    case UNI_ACTIVATION_ELU:
        return x < 0 ? alpha * expm1(x) : x;
    case UNI_ACTIVATION_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case UNI_ACTIVATION_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case UNI_ACTIVATION_SIGMOID:
        return sigmoid(x);
    case UNI_ACTIVATION_TANH:
        return tanh(x);
    case UNI_ACTIVATION_SOFTPLUS:
        return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
    case UNI_ACTIVATION_SWISH:
        return x * sigmoid(x);
    case UNI_ACTIVATION_SELU:
        return 1.0507009873554805 * (x < 0 ? 1.6732632423543772 * expm1(x) : x);
    case UNI_ACTIVATION_EXPONENTIAL:
        return exp(x);
    case UNI_ACTIVATION_SOFTSIGN:
        return x / (1 + fabs(x));
    case UNI_ACTIVATION_HARD_SIGMOID:
        return fmin(fmax(x + 3, 0), 6) / 6;
    case UNI_ACTIVATION_RELU6:
        return fmin(fmax(x, 0), 6);
    default:
        return x;
    }
}

/* `known` is the result for the kinds of uni__activation_from_output, otherwise the argument. */
static double slope(uni_activation kind, double alpha, double known)
{
    double x = known, y = known;
    switch (kind) {
    case UNI_ACTIVATION_RELU:
        return y > 0;
    case UNI_ACTIVATION_LEAKY_RELU:
        return x < 0 ? alpha : 1;
    case UNI_ACTIVATION_ELU:
        return y < 0 ? y + alpha : 1;
    case UNI_ACTIVATION_GELU:
        return 0.5 * (1 + erf(x / sqrt(2))) + x * exp(-0.5 * x * x) / sqrt(2 * M_PI);
    case UNI_ACTIVATION_GELU_TANH: {
        double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
    }
    case UNI_ACTIVATION_SIGMOID:
        return y * (1 - y);
    case UNI_ACTIVATION_TANH:
        return 1 - y * y;
    case UNI_ACTIVATION_SOFTPLUS:
        return sigmoid(x);
    case UNI_ACTIVATION_SWISH:
        return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
    case UNI_ACTIVATION_SELU:
        return y < 0 ? y + 1.0507009873554805 * 1.6732632423543772 : 1.0507009873554805;
    case UNI_ACTIVATION_EXPONENTIAL:
        return y;
    case UNI_ACTIVATION_SOFTSIGN:
        return 1 / ((1 + fabs(x)) * (1 + fabs(x)));
    case UNI_ACTIVATION_HARD_SIGMOID:
        return y > 0 && y < 1 ? 1.0 / 6 : 0;
    case UNI_ACTIVATION_RELU6:
        return y > 0 && y < 6;
    default:
        return 1;
    }
}

static void activation(uni_activation kind, float alpha, const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)function(kind, alpha, x[i]);
}

static void activation_backward(uni_activation kind, float alpha, const float *x, const float *y,
                                const float *dy, float *dx, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dx[i] = (float)(dy[i] * slope(kind, alpha, x ? x[i] : y[i]));
}

static void unary(uni_unary kind, const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double v = x[i];
        switch (kind) {
        case UNI_UNARY_NEGATE:
            v = -v;
            break;
        case UNI_UNARY_EXP:
            v = exp(v);
            break;
        case UNI_UNARY_LOG:
            v = log(v);
            break;
        case UNI_UNARY_SQRT:
            v = sqrt(v);
            break;
        case UNI_UNARY_RSQRT:
            v = 1 / sqrt(v);
            break;
        case UNI_UNARY_SQUARE:
            v = v * v;
            break;
        case UNI_UNARY_ABS:
            v = fabs(v);
            break;
        case UNI_UNARY_SIGN:
            v = v > 0 ? 1 : v < 0 ? -1 : v;
            break;
        case UNI_UNARY_FLOOR:
            v = floor(v);
            break;
        case UNI_UNARY_SIN:
            v = sin(v);
            break;
        case UNI_UNARY_COS:
            v = cos(v);
            break;
        case UNI_UNARY_RECIPROCAL:
            v = 1 / v;
            break;
        }
        y[i] = (float)v;
    }
}

static double unary_slope(uni_unary kind, double x, double y)
{
    switch (kind) {
    case UNI_UNARY_NEGATE:
        return -1;
    case UNI_UNARY_EXP:
        return y;
    case UNI_UNARY_LOG:
        return 1 / x;
    case UNI_UNARY_SQRT:
        return 0.5 / y;
    case UNI_UNARY_RSQRT:
        return -0.5 * y / x;
    case UNI_UNARY_SQUARE:
        return 2 * x;
    case UNI_UNARY_ABS:
        return x > 0 ? 1 : x < 0 ? -1 : 0;
    case UNI_UNARY_SIN:
        return cos(x);
    case UNI_UNARY_COS:
        return -sin(x);
    case UNI_UNARY_RECIPROCAL:
        return -y * y;
    default: /* sign, floor */
        return 0;
    }
}

static void unary_backward(uni_unary kind, const float *x, const float *y, const float *dy,
                           float *dx, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dx[i] = (float)(dy[i] * unary_slope(kind, x[i], y[i]));
}

static double binary_value(uni_binary kind, double a, double b)
{
    switch (kind) {
    case UNI_BINARY_ADD:
        return a + b;
    case UNI_BINARY_SUB:
        return a - b;
    case UNI_BINARY_MUL:
        return a * b;
    case UNI_BINARY_DIV:
        return a / b;
    case UNI_BINARY_POW:
        return pow(a, b);
    case UNI_BINARY_MAXIMUM:
        return a >= b || isnan(a) ? a : b;
    case UNI_BINARY_MINIMUM:
        return a <= b || isnan(a) ? a : b;
    default:
        return (a - b) * (a - b);
    }
}

static double binary_slope(uni_binary kind, int which, double a, double b)
{
    switch (kind) {
    case UNI_BINARY_ADD:
        return 1;
    case UNI_BINARY_SUB:
        return which ? -1 : 1;
    case UNI_BINARY_MUL:
        return which ? a : b;
    case UNI_BINARY_DIV:
        return which ? -a / (b * b) : 1 / b;
    case UNI_BINARY_POW:
        if (which)
            return a > 0 ? pow(a, b) * log(a) : 0;
        return b == 0 ? 0 : b * pow(a, b - 1);
    case UNI_BINARY_MAXIMUM:
        return (a >= b) != (which == 1);
    case UNI_BINARY_MINIMUM:
        return (a <= b) != (which == 1);
    default:
        return which ? -2 * (a - b) : 2 * (a - b);
    }
}

static void binary(uni_binary kind, const float *a, int a_step, const float *b, int b_step,
                   float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)binary_value(kind, a[a_step ? i : 0], b[b_step ? i : 0]);
}

static void binary_backward(uni_binary kind, int which, const float *a, int a_step, const float *b,
                            int b_step, const float *dy, float *dx, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dx[i] = (float)(dy[i] * binary_slope(kind, which, a[a_step ? i : 0], b[b_step ? i : 0]));
}

static void scale(const float *x, float *y, size_t n, float multiply, float add)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)((double)multiply * x[i] + add);
}

static double default_alpha(uni_activation kind)
{
    return kind == UNI_ACTIVATION_ELU ? 1 : 0;
}

static void bias_activation(float *y, const float *bias, size_t rows, size_t cols,
                            uni_activation kind)
{
    for (size_t i = 0; i < rows * cols; i++)
        y[i] =
            (float)function(kind, default_alpha(kind), y[i] + (bias ? (double)bias[i % cols] : 0));
}

static void bias_activation_backward(const float *y, float *dy, float *dbias, bool add, size_t rows,
                                     size_t cols, uni_activation kind)
{
    for (size_t i = 0; kind != UNI_ACTIVATION_LINEAR && i < rows * cols; i++)
        dy[i] = (float)(dy[i] * slope(kind, default_alpha(kind), y[i]));
    for (size_t c = 0; dbias && c < cols; c++) {
        double sum = add ? dbias[c] : 0;
        for (size_t r = 0; r < rows; r++)
            sum += dy[r * cols + c];
        dbias[c] = (float)sum;
    }
}

static void reduce(uni_reduce kind, const float *x, float *y, size_t outer, size_t middle,
                   size_t inner, bool add)
{
    for (size_t o = 0; o < outer; o++)
        for (size_t i = 0; i < inner; i++) {
            double sum = 0, most = -INFINITY, least = INFINITY;
            for (size_t j = 0; j < middle; j++) {
                double v = x[(o * middle + j) * inner + i];
                sum += v;
                most = v > most || isnan(v) ? v : most;
                least = v < least || isnan(v) ? v : least;
            }
            if (kind == UNI_REDUCE_MEAN)
                sum /= (double)middle; /* 0 / 0 is NaN, as in NumPy */
            float *out = &y[o * inner + i];
            *out = (float)(kind == UNI_REDUCE_MAX   ? most
                           : kind == UNI_REDUCE_MIN ? least
                                                    : sum + (add ? *out : 0));
        }
}

static double log_sum(const float *x, size_t cols)
{
    double most = x[0], sum = 0;
    for (size_t i = 1; i < cols; i++)
        most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < cols; i++)
        sum += exp(x[i] - most);
    return most + log(sum);
}

static void softmax(const float *x, float *y, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++, x += cols, y += cols) {
        double offset = log_sum(x, cols);
        for (size_t i = 0; i < cols; i++)
            y[i] = (float)exp(x[i] - offset);
    }
}

static void softmax_backward(const float *y, const float *dy, float *dx, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++, y += cols, dy += cols, dx += cols) {
        double dot = 0;
        for (size_t i = 0; i < cols; i++)
            dot += (double)y[i] * dy[i];
        for (size_t i = 0; i < cols; i++)
            dx[i] = (float)(y[i] * (dy[i] - dot));
    }
}

static void log_softmax(const float *x, float *y, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++, x += cols, y += cols) {
        double offset = log_sum(x, cols);
        for (size_t i = 0; i < cols; i++)
            y[i] = (float)(x[i] - offset);
    }
}

static void log_softmax_backward(const float *y, const float *dy, float *dx, size_t rows,
                                 size_t cols)
{
    for (size_t r = 0; r < rows; r++, y += cols, dy += cols, dx += cols) {
        double sum = 0;
        for (size_t i = 0; i < cols; i++)
            sum += dy[i];
        for (size_t i = 0; i < cols; i++)
            dx[i] = (float)(dy[i] - exp(y[i]) * sum);
    }
}

static void layer_norm(const float *x, const float *gamma, const float *beta, float *y, float *mean,
                       float *rstd, size_t rows, size_t cols, float epsilon)
{
    for (size_t r = 0; r < rows; r++, x += cols, y += cols) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < cols; i++)
            sum += x[i];
        sum /= (double)cols;
        for (size_t i = 0; i < cols; i++)
            squares += (x[i] - sum) * (x[i] - sum);
        mean[r] = (float)sum;
        rstd[r] = (float)(1 / sqrt(squares / (double)cols + epsilon));
        for (size_t i = 0; i < cols; i++)
            y[i] = (float)((x[i] - sum) * rstd[r] * (gamma ? gamma[i] : 1) + (beta ? beta[i] : 0));
    }
}

static void layer_norm_backward(const float *x, const float *gamma, const float *mean,
                                const float *rstd, const float *dy, float *dx, bool add,
                                float *dgamma, float *dbeta, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++) {
        double sum = 0, dot = 0;
        const float *xr = x + r * cols, *dr = dy + r * cols;
        for (size_t i = 0; i < cols; i++) {
            double hat = ((double)xr[i] - mean[r]) * rstd[r], d = dr[i];
            if (dgamma)
                dgamma[i] += (float)(d * hat);
            if (dbeta)
                dbeta[i] += (float)d;
            d *= gamma ? gamma[i] : 1;
            sum += d;
            dot += d * hat;
        }
        for (size_t i = 0; dx && i < cols; i++) {
            double hat = ((double)xr[i] - mean[r]) * rstd[r], d = dr[i] * (gamma ? gamma[i] : 1.0);
            float v = (float)(rstd[r] * (d - sum / (double)cols - hat * dot / (double)cols));
            dx[r * cols + i] = add ? dx[r * cols + i] + v : v;
        }
    }
}

static void column_moments(const float *x, const float *shift, float *sums, float *squares,
                           size_t rows, size_t cols)
{
    for (size_t c = 0; c < cols; c++) {
        double sum = sums[c], square = squares[c];
        for (size_t r = 0; r < rows; r++) {
            double v = x[r * cols + c], d = v - (shift ? shift[c] : 0);
            sum += v;
            square += d * d;
        }
        sums[c] = (float)sum;
        squares[c] = (float)square;
    }
}

static void column_products(const float *x, const float *mean, const float *dy, float *sums,
                            float *products, size_t rows, size_t cols)
{
    for (size_t c = 0; c < cols; c++) {
        double sum = sums[c], product = products[c];
        for (size_t r = 0; r < rows; r++) {
            sum += dy[r * cols + c];
            product += dy[r * cols + c] * ((double)x[r * cols + c] - mean[c]);
        }
        sums[c] = (float)sum;
        products[c] = (float)product;
    }
}

static void column_affine(const float *x, const float *factor, const float *shift, float *y,
                          size_t rows, size_t cols)
{
    for (size_t i = 0; i < rows * cols; i++)
        y[i] = x[i] * factor[i % cols] + shift[i % cols];
}

static void column_combine(const float *x, const float *dy, const float *a, const float *b,
                           const float *c, float *dx, bool add, size_t rows, size_t cols)
{
    for (size_t i = 0; i < rows * cols; i++) {
        size_t k = i % cols;
        dx[i] = (add ? dx[i] : 0) + dy[i] * a[k] + x[i] * b[k] + c[k];
    }
}

/* Element e of a row: block e / 64 * 8 + e % 8 of Philox, its 16-bit draw number e / 8 % 8. */
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
        return fmax(1 - t * p, 0);
    case UNI_LOSS_SQUARED_HINGE:
        return fmax(1 - t * p, 0) * fmax(1 - t * p, 0);
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

const uni__kernels uni__kernels_reference = {
    .name = "reference",
    .activation = activation,
    .activation_backward = activation_backward,
    .unary = unary,
    .unary_backward = unary_backward,
    .binary = binary,
    .binary_backward = binary_backward,
    .scale = scale,
    .bias_activation = bias_activation,
    .bias_activation_backward = bias_activation_backward,
    .reduce = reduce,
    .softmax = softmax,
    .softmax_backward = softmax_backward,
    .log_softmax = log_softmax,
    .log_softmax_backward = log_softmax_backward,
    .layer_norm = layer_norm,
    .layer_norm_backward = layer_norm_backward,
    .column_moments = column_moments,
    .column_products = column_products,
    .column_affine = column_affine,
    .column_combine = column_combine,
    .dropout = dropout,
    .uniform = uniform,
    .max_merge = max_merge,
    .pointwise_loss = pointwise_loss,
    .pointwise_loss_backward = pointwise_loss_backward,
    .add_in_place = add_in_place,
    .sgd = sgd,
    .momentum = momentum,
    .adam = adam,
    .rmsprop = rmsprop,
    .adagrad = adagrad,
};
