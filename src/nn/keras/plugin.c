/*
 * plugin.c - the table that the engine asks for, and what the readers and writers send their
 * results with.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nn/keras/internal.h"

int uni__send(int fd, const void *data, size_t size, uni_error *err)
{
    for (size_t done = 0; done < size;) {
        ssize_t written = write(fd, (const char *)data + done, size - done);
        if (written < 0 && errno != EINTR)
            return uni_error_set_errno(err, errno, "cannot write to the parent process");
        done += written > 0 ? (size_t)written : 0;
    }
    return 0;
}

int uni__send_file_record(int fd, uni__file_record *record, const char *path, const void *data,
                          uni_error *err)
{
    record->path_size = (uint32_t)strlen(path) + 1;
    UNI_TRY(uni__send(fd, record, sizeof *record, err));
    UNI_TRY(uni__send(fd, path, record->path_size, err));
    return uni__send(fd, data, record->size, err);
}

static int write_weights(int fd, const uni__h5_contents *contents, uni_error *err)
{
    void *image = NULL;
    size_t size = 0;
    UNI_TRY(uni__hdf5_image(&image, &size, contents, err));
    int status = uni__send(fd, image, size, err);
    free(image);
    return status;
}

static const uni__keras_plugin plugin = { .version = UNI__KERAS_PLUGIN_VERSION,
                                          .write_weights = write_weights,
                                          .write_archive = uni__archive_write,
                                          .read_weights = uni__hdf5_read,
                                          .read_archive = uni__archive_read };

UNI_API const uni__keras_plugin *uni__keras_plugin_get(void);
const uni__keras_plugin *uni__keras_plugin_get(void)
{
    return &plugin;
}
