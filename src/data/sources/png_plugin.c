/*
 * png_plugin.c - libunisono-png.so: decodes PNG images for src/data (image_plugin.h) with libpng's
 * simplified interface. Palettes become RGB, 16 bits become 8. Any thread.
 */
#include <png.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "data/sources/image_plugin.h"

static int failed(png_image *image, char *why)
{
    snprintf(why, UNI__IMAGE_WHY_SIZE, "%s", image->message);
    png_image_free(image);
    return -1;
}

static int open_image(png_image *image, const uint8_t *bytes, size_t count, char *why)
{
    memset(image, 0, sizeof *image);
    image->version = PNG_IMAGE_VERSION;
    return png_image_begin_read_from_memory(image, bytes, count) ? 0 : failed(image, why);
}

static int channels_of(const png_image *image)
{
    bool colour = (image->format & (PNG_FORMAT_FLAG_COLOR | PNG_FORMAT_FLAG_COLORMAP)) != 0,
         alpha = (image->format & PNG_FORMAT_FLAG_ALPHA) != 0;
    return (colour ? 3 : 1) + (alpha ? 1 : 0);
}

static int size_of(const uint8_t *bytes, size_t count, uni__image_size *size, char *why)
{
    png_image image;
    if (open_image(&image, bytes, count, why) < 0)
        return -1;
    size->width = image.width > UNI__IMAGE_MAX_SIDE ? -1 : (int)image.width;
    size->height = image.height > UNI__IMAGE_MAX_SIDE ? -1 : (int)image.height;
    size->channels = channels_of(&image);
    size->needs = 0;
    png_image_free(&image);
    return 0;
}

static int decode(const uint8_t *bytes, size_t count, const uni__image_size *size, uint8_t *out,
                  char *why)
{
    static const png_uint_32 formats[] = { 0, PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB,
                                           PNG_FORMAT_RGBA };
    png_image image;
    if (open_image(&image, bytes, count, why) < 0)
        return -1;
    image.format = formats[size->channels];
    if (!png_image_finish_read(&image, NULL, out, 0, NULL) || image.warning_or_error != 0)
        return failed(&image, why);
    png_image_free(&image);
    return 0;
}

const uni__image_plugin *uni__image_plugin_get(void);
__attribute__((visibility("default"))) const uni__image_plugin *uni__image_plugin_get(void)
{
    static const uni__image_plugin plugin = {
        .version = UNI__IMAGE_PLUGIN_VERSION, .name = "PNG", .size = size_of, .decode = decode
    };
    return &plugin;
}
