/*
 * image_plugin.h - what libunisono and its plug-ins for images agree on: libunisono-jpeg.so (TurboJPEG) and libunisono-png.so (libpng) have one table
 * each. They know nothing of libunisono. Used by this folder only.
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
    int channels; /* as decode gives them: 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA */
    size_t needs; /* bytes that the decoder allocates besides the pixels; 0: a few rows */
} uni__image_size;

typedef struct uni__image_plugin {
    int version;
    const char *name; /* "JPEG" */
    /* 0, or -1 with a reason. Any thread. */
    int (*size)(const uint8_t *bytes, size_t count, uni__image_size *size, char *why);
    /* 8 bits a channel, rows one after the other, into width * height * channels bytes as `size` said. */
    int (*decode)(const uint8_t *bytes, size_t count, const uni__image_size *size, uint8_t *out,
                  char *why);
} uni__image_plugin;

#endif
