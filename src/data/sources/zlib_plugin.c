/*
 * zlib_plugin.c - libunisono-zlib.so: gzip files for src/data (codec_plugin.h). One thread per
 * state.
 */
#include <stdlib.h>
#include <zlib.h>

#include "data/sources/codec_plugin.h"

static void *codec_open(void)
{
    z_stream *stream = calloc(1, sizeof *stream);
    if (stream != NULL && inflateInit2(stream, 15 + 16) != Z_OK) { /* + 16: gzip header */
        free(stream);
        stream = NULL;
    }
    return stream;
}

static int codec_run(void *state, const uint8_t **in, size_t *in_size, uint8_t **out,
                     size_t *out_size, const char **why)
{
    z_stream *stream = state;
    uInt input = *in_size > 1u << 30 ? 1u << 30 : (uInt)*in_size,
         output = *out_size > 1u << 30 ? 1u << 30 : (uInt)*out_size;
    stream->next_in = (Bytef *)*in;
    stream->avail_in = input;
    stream->next_out = *out;
    stream->avail_out = output;
    int result = inflate(stream, Z_NO_FLUSH);
    *in += input - stream->avail_in;
    *in_size -= input - stream->avail_in;
    *out += output - stream->avail_out;
    *out_size -= output - stream->avail_out;
    if (result == Z_STREAM_END)
        return inflateReset(stream) == Z_OK ? 1 : -1;
    if (result == Z_OK || result == Z_BUF_ERROR)
        return 0;
    *why = stream->msg != NULL ? stream->msg : "not gzip";
    return -1;
}

static void codec_close(void *state)
{
    if (state != NULL)
        inflateEnd(state);
    free(state);
}

const uni__codec_plugin *uni__codec_plugin_get(void);
__attribute__((visibility("default"))) const uni__codec_plugin *uni__codec_plugin_get(void)
{
    static const uni__codec_plugin plugin = { .version = UNI__CODEC_PLUGIN_VERSION,
                                              .name = "gzip",
                                              .open = codec_open,
                                              .run = codec_run,
                                              .close = codec_close };
    return &plugin;
}
