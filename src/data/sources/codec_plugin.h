/*
 * codec_plugin.h - the interface between libunisono and its plug-ins for compressed files. For this
 * folder only.
 *
 * libunisono-zlib.so (gzip) and libunisono-zstd.so each export one table. They use no symbol of
 * libunisono.
 */
#ifndef UNISONO_DATA_CODEC_PLUGIN_H
#define UNISONO_DATA_CODEC_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#define UNI__CODEC_PLUGIN_VERSION 1
#define UNI__CODEC_PLUGIN_SYMBOL "uni__codec_plugin_get"

typedef struct uni__codec_plugin {
    int version;
    const char *name; /* "gzip", for messages */
    void *(*open)(void); /* NULL: out of memory */
    /* Consumes *in and fills *out as far as possible, and advances both. Returns 1 if a member
     * (frame) ended exactly here, 0 if it continues, -1 if the data is corrupt; *why says how.
     * After 1 the next call begins a new member: both formats allow several in a row. */
    int (*run)(void *state, const uint8_t **in, size_t *in_size, uint8_t **out, size_t *out_size,
               const char **why);
    void (*close)(void *state);
} uni__codec_plugin;

#endif
