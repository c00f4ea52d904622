/*
 * plugin.h - the one table between the engine and libunisono-keras.so, which alone links HDF5 and
 * libzip.
 *
 * All functions run in a child process (src/nn/files/child.c) that may crash, run out of memory or
 * be killed without harm, so that a hostile file meets the two libraries there only. They write
 * their result to a descriptor: writers the bytes of the file, readers one record after the other:
 * a uni__file_record, its path (path_size bytes), its data (size bytes). Parents check every number
 * of it.
 */
#ifndef UNISONO_NN_KERAS_PLUGIN_H
#define UNISONO_NN_KERAS_PLUGIN_H

#include <unisono/array.h>

#define UNI__KERAS_PLUGIN_VERSION 1
#define UNI__KERAS_PLUGIN_FILE "libunisono-keras.so"
#define UNI__KERAS_PLUGIN_SYMBOL "uni__keras_plugin_get"

enum uni__item_kind {
    UNI__ITEM_VARIABLE = 1, /* a dataset: float32 or int64 */
    UNI__ITEM_GROUP, /* path and nothing else */
    UNI__ITEM_MEMBER /* of the archive */
};

typedef struct uni__file_record {
    uint32_t kind, dtype, ndim, path_size;
    int64_t shape[UNI_MAX_DIMS];
    uint64_t size;
} uni__file_record;

typedef struct uni__h5_group {
    char *path, *name;
} uni__h5_group;

typedef struct uni__h5_variable {
    const char *path;
    uni_dtype dtype; /* UNI_F32 or UNI_I64 */
    int ndim;
    const int64_t *shape;
    const void *data;
} uni__h5_variable;

typedef struct uni__h5_contents {
    size_t num_groups, num_variables;
    const uni__h5_group *groups;
    const uni__h5_variable *variables;
} uni__h5_contents;

typedef struct uni__zip_member {
    const char *name;
    const void *data;
    size_t size;
} uni__zip_member;

/* Limits of what is read. */
#define UNI__MAX_PATH_SIZE 1024
#define UNI__MAX_ITEMS 200000

typedef struct uni__keras_plugin {
    int version;
    int (*write_weights)(int fd, const uni__h5_contents *contents, uni_error *err);
    /* The members as they are, and model.weights.h5. */
    int (*write_archive)(int fd, size_t count, const uni__zip_member *members,
                         const uni__h5_contents *contents, uni_error *err);
    int (*read_weights)(int fd, const void *bytes, size_t size, uni_error *err);
    int (*read_archive)(int fd, const void *bytes, size_t size, uni_error *err);
} uni__keras_plugin;

#endif
