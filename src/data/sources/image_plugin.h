/*
 * image_plugin.h - the interface between libunisono and its image plug-ins: libunisono-jpeg.so
 * (TurboJPEG) and libunisono-png.so (libpng) export one table each and use no symbol of libunisono.
 * For this folder only.
 */
#ifndef UNISONO_DATA_IMAGE_PLUGIN_H
#define UNISONO_DATA_IMAGE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#define UNI__IMAGE_PLUGIN_VERSION 2
#define UNI__IMAGE_PLUGIN_SYMBOL "uni__image_plugin_get"
#define UNI__IMAGE_WHY_SIZE 200
#define UNI__IMAGE_MAX_SIDE 32768
#define UNI__IMAGE_MAX_PIXELS ((size_t)1 << 28)

typedef struct uni__image_size {
    int width, height;
    int channels; /* as decoded: 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA */
    size_t needs; /* Bytes that the decoder allocates besides the pixels; 0: a few rows. */
} uni__image_size;

typedef struct uni__image_plugin {
    int version;
    const char *name; /* "JPEG" */
    /* Returns 0, or -1 with a reason. Any thread. */
    int (*size)(const uint8_t *bytes, size_t count, uni__image_size *size, char *why);
    /* Decodes to 8 bits per channel, rows contiguous, into the width * height * channels bytes that
     * `size` reported. */
    int (*decode)(const uint8_t *bytes, size_t count, const uni__image_size *size, uint8_t *out,
                  char *why);
} uni__image_plugin;

#endif
