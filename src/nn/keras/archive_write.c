/*
 * archive_write.c - a .keras file: a zip archive, nothing compressed (weights do not shrink, and
 * Keras does the same), made in memory.
 */
#include <stdlib.h>
#include <zip.h>

#include "nn/keras/internal.h"

static int add_member(zip_t *archive, const uni__zip_member *member, uni_error *err)
{
    zip_source_t *source = zip_source_buffer(archive, member->data, member->size, 0);
    zip_int64_t index =
        source != NULL ? zip_file_add(archive, member->name, source, ZIP_FL_ENC_UTF_8) : -1;
    if (index < 0) {
        zip_source_free(source);
        return uni_error_set(err, UNI_ENOMEM, "zip: %s", zip_strerror(archive));
    }
    zip_set_file_compression(archive, (zip_uint64_t)index, ZIP_CM_STORE, 0);
    zip_file_set_dostime(archive, (zip_uint64_t)index, 0, 33,
                         0); /* 1980: the same model is the same file */
    return 0;
}

static int send_source(int fd, zip_source_t *source, uni_error *err)
{
    char *buffer = malloc((size_t)1 << 20);
    if (buffer == NULL || zip_source_open(source) < 0) {
        free(buffer);
        return uni_error_set(err, UNI_ENOMEM, "zip: no memory for the archive");
    }
    int status = 0;
    for (zip_int64_t got;
         status == 0 && (got = zip_source_read(source, buffer, (zip_uint64_t)1 << 20)) != 0;)
        status = got > 0 ? uni__send(fd, buffer, (size_t)got, err)
                         : uni_error_set(err, UNI_EIO, "zip: the archive cannot be read back");
    zip_source_close(source);
    free(buffer);
    return status;
}

static int write_members(int fd, size_t count, const uni__zip_member *members,
                         const uni__zip_member *weights, uni_error *err)
{
    zip_error_t failure;
    zip_error_init(&failure);
    zip_source_t *source = zip_source_buffer_create(NULL, 0, 0, &failure);
    zip_t *archive =
        source != NULL ? zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, &failure) : NULL;
    if (archive == NULL) {
        zip_source_free(source);
        return uni_error_set(err, UNI_ENOMEM, "zip: %s", zip_error_strerror(&failure));
    }
    zip_source_keep(source);
    int status = 0;
    for (size_t i = 0; status == 0 && i < count; i++)
        status = add_member(archive, &members[i], err);
    if (status == 0)
        status = add_member(archive, weights, err);
    if (status < 0)
        zip_discard(archive);
    else if (zip_close(archive) < 0)
        status = uni_error_set(err, UNI_EIO, "zip: %s", zip_strerror(archive));
    if (status == 0)
        status = send_source(fd, source, err);
    zip_source_free(source);
    return status;
}

int uni__archive_write(int fd, size_t count, const uni__zip_member *members,
                       const uni__h5_contents *contents, uni_error *err)
{
    uni__zip_member weights = { .name = "model.weights.h5" };
    void *image = NULL;
    UNI_TRY(uni__hdf5_image(&image, &weights.size, contents, err));
    weights.data = image;
    int status = write_members(fd, count, members, &weights, err);
    free(image);
    return status;
}
