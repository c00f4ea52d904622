/*
 * image_pixels.c - converts channels and sizes of images (image_pixels.h). Two passes, columns into
 * floats and then rows, with a weight for every source pixel that contributes to an output pixel.
 */
#include "data/sources/image_pixels.h"

#include <math.h>
#include <string.h>

static uint8_t grey(const uint8_t *p)
{
    return (uint8_t)((p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16);
}

void uni__pixels_convert(const uint8_t *from, int from_channels, uint8_t *to, int to_channels,
                         size_t count)
{
    for (size_t i = 0; i < count; i++, from += from_channels, to += to_channels) {
        uint8_t alpha = from_channels % 2 == 0 ? from[from_channels - 1] : 255;
        if (to_channels <= 2)
            to[0] = from_channels <= 2 ? from[0] : grey(from);
        else
            for (int c = 0; c < 3; c++)
                to[c] = from_channels <= 2 ? from[0] : from[c];
        if (to_channels % 2 == 0)
            to[to_channels - 1] = alpha;
    }
}

/* Finds the source pixels that contribute to an output pixel. */
static void span(int index, double scale, int size, int *first, int *count, double *centre,
                 double *support)
{
    *support = scale > 1 ? scale : 1;
    *centre = (index + 0.5) * scale;
    int low = (int)(*centre - *support + 0.5), high = (int)(*centre + *support + 0.5);
    low = low < 0 ? 0 : low;
    high = high > size ? size : high;
    *first = low;
    *count = high - low;
}

static double weight(int pixel, double centre, double support)
{
    double distance = fabs((pixel - centre + 0.5) / support);
    return distance < 1 ? 1 - distance : 0;
}

size_t uni__pixels_work(int height, int width, int to_height, int to_width, int channels)
{
    int longest = width > height ? width : height;
    return (size_t)height * (size_t)to_width * (size_t)channels + (size_t)longest * 2 + 8;
}

static void weights(float *out, int first, int count, double centre, double support)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += weight(first + i, centre, support);
    for (int i = 0; i < count; i++)
        out[i] = (float)(weight(first + i, centre, support) / sum);
}

void uni__pixels_resize(const uint8_t *from, int height, int width, int channels, uint8_t *to,
                        int to_height, int to_width, float *work)
{
    float *rows = work, *taps = work + (size_t)height * (size_t)to_width * (size_t)channels;
    size_t row_size = (size_t)to_width * (size_t)channels;
    double centre, support;
    int first, count;
    for (int x = 0; x < to_width; x++) {
        span(x, (double)width / to_width, width, &first, &count, &centre, &support);
        weights(taps, first, count, centre, support);
        for (int y = 0; y < height; y++)
            for (int c = 0; c < channels; c++) {
                const uint8_t *source =
                    from + ((size_t)y * (size_t)width + (size_t)first) * (size_t)channels +
                    (size_t)c;
                float sum = 0;
                for (int i = 0; i < count; i++)
                    sum += taps[i] * source[(size_t)i * (size_t)channels];
                /* Pillow also rounds between the passes. */
                rows[(size_t)y * row_size + (size_t)(x * channels + c)] = floorf(sum + 0.5f);
            }
    }
    for (int y = 0; y < to_height; y++) {
        span(y, (double)height / to_height, height, &first, &count, &centre, &support);
        weights(taps, first, count, centre, support);
        for (size_t x = 0; x < row_size; x++) {
            float sum = 0;
            for (int i = 0; i < count; i++)
                sum += taps[i] * rows[(size_t)(first + i) * row_size + x];
            to[(size_t)y * row_size + x] = (uint8_t)(sum + 0.5f > 255 ? 255 : sum + 0.5f);
        }
    }
}
