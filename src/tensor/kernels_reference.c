/*
 * kernels_reference.c - the plain version of every inner loop: one line of mathematics each, with
 * libm, in double. Tests compare the fast tables with this one, and the tape option `reference`
 * runs it. See kernels.h for the shapes. Any thread.
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
        return (x < -3 ? 0 : x > 3 ? 6 : x + 3) / 6; /* NaN stays */
    case UNI_ACTIVATION_RELU6:
        return x < 0 ? 0 : x > 6 ? 6 : x;
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

#include "tensor/kernels_reference_step.h"

const uni__tensor_kernels uni__tensor_kernels_reference = {
    .name = "reference",
    UNI__TENSOR_KERNELS_HERE,
};
