/*
 * kernels_thin.h - convolutions of images with few channels (1 to 4), the first layer of a network.
 * Included after kernels_gemm.h by kernels_avx2.c only.
 *
 * There is little to multiply (9 or 27 products per result) and much to move: the results are 32
 * times as large as the input. So the backward pass, which needs no gradient of the image, is one
 * pass over y and dy that writes nothing: the slope of the activation, the sums of the bias and
 * those of every tap. An image is first copied into a frame of zeros, which avoids special cases at
 * the border.
 */
#define THIN_PIXELS 4
#define THIN_TAPS 9

static size_t thin_row(const uni__thin *t) /* floats of a row of the frame */
{
    return (size_t)((t->conv.out_width + t->conv.kernel_width - 1) * t->conv.in);
}

static void thin_frame(const uni__thin *t, size_t image, float *frame)
{
    size_t row = thin_row(t), in = (size_t)t->conv.in, width = (size_t)t->conv.width * in;
    int64_t rows = t->conv.out_height + t->conv.kernel_height - 1;
    const float *x = t->x + image * (size_t)t->conv.height * width;
    for (int64_t i = 0; i < rows; i++, frame += row) {
        int64_t from = i - t->conv.pad_top;
        size_t left = (size_t)t->conv.pad_left * in;
        memset(frame, 0, row * sizeof(float));
        if (from >= 0 && from < t->conv.height)
            memcpy(frame + left, x + (size_t)from * width,
                   (width < row - left ? width : row - left) * sizeof(float));
    }
}

/* Computes `pixels` results of 16 channels. */
INLINE void thin_pixels(const uni__thin *t, int pixels, const float *at, const float *kernel,
                        const float *bias, float *y)
{
    size_t in = (size_t)t->conv.in, out = (size_t)t->conv.out, row = thin_row(t);
    size_t across = (size_t)t->conv.kernel_width * in;
    v8 left[THIN_PIXELS], right[THIN_PIXELS];
    for (int p = 0; p < pixels; p++) {
        left[p] = bias ? get8(bias) : splat(0);
        right[p] = bias ? get8(bias + 8) : splat(0);
    }
    for (int64_t i = 0; i < t->conv.kernel_height; i++)
        for (size_t j = 0; j < across; j++, kernel += out) {
            v8 k0 = get8(kernel), k1 = get8(kernel + 8);
            for (int p = 0; p < pixels; p++) {
                v8 value = splat(at[(size_t)i * row + j + (size_t)p * in]);
                left[p] += value * k0;
                right[p] += value * k1;
            }
        }
    for (int p = 0; p < pixels; p++) {
        put8(y + (size_t)p * out, t->conv.relu ? pick(left[p] < 0, splat(0), left[p]) : left[p]);
        put8(y + (size_t)p * out + 8,
             t->conv.relu ? pick(right[p] < 0, splat(0), right[p]) : right[p]);
    }
}

static void thin_forward(const uni__thin *t, size_t begin, size_t end, float *frame)
{
    size_t in = (size_t)t->conv.in, out = (size_t)t->conv.out, row = thin_row(t),
           width = (size_t)t->conv.out_width;
    for (size_t image = begin; image < end; image++) {
        float *y = t->y + image * (size_t)t->conv.out_height * width * out;
        thin_frame(t, image, frame);
        for (size_t h = 0; h < (size_t)t->conv.out_height; h++, y += width * out)
            for (size_t k = 0; k < out; k += 16) {
                const float *at = frame + h * row, *bias = t->bias ? t->bias + k : NULL;
                size_t w = 0;
                for (; w + THIN_PIXELS <= width; w += THIN_PIXELS)
                    thin_pixels(t, THIN_PIXELS, at + w * in, t->kernel + k, bias, y + w * out + k);
                for (; w < width; w++)
                    thin_pixels(t, 1, at + w * in, t->kernel + k, bias, y + w * out + k);
            }
    }
}

/* Adds a row of results for eight channels to the sums of `taps` taps, and to those of the bias if
 * wanted. */
INLINE void thin_row_back(const uni__thin *t, int taps, const float *at, const size_t *offsets,
                          const float *y, const float *dy, float *sums, float *bias)
{
    size_t in = (size_t)t->conv.in, out = (size_t)t->conv.out;
    v8 sum[THIN_TAPS], all = splat(0);
    for (int i = 0; i < taps; i++)
        sum[i] = splat(0);
    for (size_t w = 0; w < (size_t)t->conv.out_width; w++) {
        v8 dz = get8(dy + w * out);
        if (t->conv.relu)
            dz = pick(get8(y + w * out) > 0, dz, splat(0));
        all += dz;
        for (int i = 0; i < taps; i++)
            sum[i] += splat(at[w * in + offsets[i]]) * dz;
    }
    for (int i = 0; i < taps; i++)
        put8(sums + (size_t)i * out, get8(sums + (size_t)i * out) + sum[i]);
    if (bias)
        put8(bias, get8(bias) + all);
}

/* All taps of a row; `offsets` are those of the taps in the frame. */
static void thin_taps_back(const uni__thin *t, size_t taps, const float *at, const size_t *offsets,
                           const float *y, const float *dy, float *sums, float *bias)
{
    size_t out = (size_t)t->conv.out, i = 0;
    for (; i + THIN_TAPS <= taps; i += THIN_TAPS)
        thin_row_back(t, THIN_TAPS, at, offsets + i, y, dy, sums + i * out, i ? NULL : bias);
    for (; i + 4 <= taps; i += 4)
        thin_row_back(t, 4, at, offsets + i, y, dy, sums + i * out, i ? NULL : bias);
    for (; i < taps; i++)
        thin_row_back(t, 1, at, offsets + i, y, dy, sums + i * out, i ? NULL : bias);
}

static void thin_backward(const uni__thin *t, size_t begin, size_t end, float *frame,
                          float *dkernel, float *dbias)
{
    size_t out = (size_t)t->conv.out, row = thin_row(t),
           across = (size_t)(t->conv.kernel_width * t->conv.in),
           taps = (size_t)t->conv.kernel_height * across;
    size_t offsets[UNI__THIN_MOST_TAPS];
    for (size_t i = 0; i < taps; i++)
        offsets[i] = i / across * row + i % across;
    memset(dkernel, 0, taps * out * sizeof(float));
    memset(dbias, 0, out * sizeof(float));
    for (size_t image = begin; image < end; image++) {
        thin_frame(t, image, frame);
        for (size_t h = 0; h < (size_t)t->conv.out_height; h++) {
            size_t first =
                (image * (size_t)t->conv.out_height + h) * (size_t)t->conv.out_width * out;
            for (size_t k = 0; k < out; k += 8)
                thin_taps_back(t, taps, frame + h * row, offsets, t->y + first + k,
                               t->dy + first + k, dkernel + k, dbias + k);
        }
    }
}
