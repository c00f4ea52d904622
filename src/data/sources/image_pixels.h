/* image_pixels.h - converts channels and sizes of decoded images. Pure; any thread. */
#ifndef UNISONO_DATA_IMAGE_PIXELS_H
#define UNISONO_DATA_IMAGE_PIXELS_H

#include <stddef.h>
#include <stdint.h>

/* Converts between 1 (grey), 2 (grey, alpha), 3 (RGB) and 4 (RGBA) channels as Pillow's convert
 * does: grey by ITU-R 601; alpha is dropped, or set to opaque. */
void uni__pixels_convert(const uint8_t *from, int from_channels, uint8_t *to, int to_channels,
                         size_t count);
/* Bilinear resize of a (height, width, channels) image. The support grows when scaling down, as in
 * Pillow's BILINEAR. work has uni__pixels_work(...) floats. */
size_t uni__pixels_work(int height, int width, int to_height, int to_width, int channels);
void uni__pixels_resize(const uint8_t *from, int height, int width, int channels, uint8_t *to,
                        int to_height, int to_width, float *work);

#endif
