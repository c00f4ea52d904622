/*
 * hdf5_read.c - all groups and datasets of an HDF5 file in memory, as records.
 *
 * Only what Keras writes is taken: hard links, groups, dense datasets of floats or integers that
 * are in the file itself. Links to elsewhere, external and virtual storage, filters, other types
 * and datasets that claim more than the file has are refused. HDF5 itself may crash or loop on a
 * damaged file; the process has limits and nothing to lose.
 */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/keras/internal.h"

#define MAX_DEPTH 32
#define MAX_NAME 256

struct reading {
    int fd;
    size_t file_size, total, items;
    char path[UNI__MAX_PATH_SIZE];
    haddr_t above[MAX_DEPTH]; /* addresses of the groups that we are in */
    uni_error *err;
};

static int broken(const struct reading *reading)
{
    return uni_error_set(reading->err, UNI_EFORMAT, "the HDF5 weights are damaged at /%s",
                         reading->path);
}

/* ---- datasets ---- */

static int check_storage(const struct reading *reading, hid_t data, size_t bytes)
{
    hid_t made = H5Dget_create_plist(data);
    int external = H5Pget_external_count(made), filters = H5Pget_nfilters(made);
    H5D_layout_t layout = H5Pget_layout(made);
    H5Pclose(made);
    if (external != 0)
        return uni_error_set(reading->err, UNI_EFORMAT,
                             "the dataset /%s has external storage (its bytes are in another "
                             "file), which is refused",
                             reading->path);
    if (layout == H5D_VIRTUAL)
        return uni_error_set(
            reading->err, UNI_EFORMAT,
            "the dataset /%s has a virtual layout (a view of another file), which is refused",
            reading->path);
    if (filters != 0)
        return uni_error_set(
            reading->err, UNI_EFORMAT,
            "the dataset /%s needs a filter (compression), which is refused; Keras writes none",
            reading->path);
    if (layout != H5D_CONTIGUOUS && layout != H5D_COMPACT && layout != H5D_CHUNKED)
        return broken(reading);
    hsize_t stored = H5Dget_storage_size(data);
    if (bytes > 0 && (stored < bytes || stored > reading->file_size))
        return uni_error_set(
            reading->err, UNI_EFORMAT,
            "the dataset /%s claims a shape of %zu bytes, but the file has a size of %zu",
            reading->path, bytes, reading->file_size);
    return 0;
}

/* The element type as we send it; element_size is the file's. */
static int find_type(const struct reading *reading, hid_t data, uni_dtype *dtype,
                     size_t *element_size)
{
    hid_t type = H5Dget_type(data);
    H5T_class_t class_ = H5Tget_class(type);
    *element_size = H5Tget_size(type);
    H5Tclose(type);
    bool usual = *element_size >= 1 && *element_size <= 8;
    if (usual && class_ == H5T_FLOAT)
        *dtype = UNI_F32;
    else if (usual && class_ == H5T_INTEGER)
        *dtype = UNI_I64;
    else
        return uni_error_set(reading->err, UNI_EDTYPE,
                             "the dataset /%s has an element type (dtype) that is not numeric",
                             reading->path);
    return 0;
}

static int find_shape(const struct reading *reading, hid_t data, uni__file_record *record,
                      size_t element_size, size_t *count)
{
    hsize_t shape[H5S_MAX_RANK];
    hid_t space = H5Dget_space(data);
    int rank = H5Sget_simple_extent_type(space) == H5S_NULL
                   ? -1
                   : H5Sget_simple_extent_dims(space, shape, NULL);
    H5Sclose(space);
    if (rank < 0)
        return broken(reading);
    if (rank > UNI_MAX_DIMS)
        return uni_error_set(reading->err, UNI_EFORMAT,
                             "the dataset /%s has a shape of %d dimensions", reading->path, rank);
    record->ndim = (uint32_t)rank;
    *count = 1;
    for (int i = 0; i < rank; i++) {
        record->shape[i] = (int64_t)shape[i];
        if (shape[i] > INT64_MAX || __builtin_mul_overflow(*count, (size_t)shape[i], count) ||
            *count > SIZE_MAX / 16)
            return uni_error_set(reading->err, UNI_EFORMAT,
                                 "the dataset /%s claims a shape of more numbers than there can be",
                                 reading->path);
    }
    return check_storage(reading, data, *count * element_size);
}

static int read_dataset(struct reading *reading, hid_t data)
{
    uni__file_record record = { .kind = UNI__ITEM_VARIABLE };
    size_t count = 0, element_size = 0;
    uni_dtype dtype = UNI_F32;
    UNI_TRY(find_type(reading, data, &dtype, &element_size));
    UNI_TRY(find_shape(reading, data, &record, element_size, &count));
    record.dtype = (uint32_t)dtype;
    record.size = count * uni_dtype_size(dtype);
    reading->total += record.size;
    if (reading->total > 2 * reading->file_size + ((size_t)1 << 20))
        return uni_error_set(reading->err, UNI_ELIMIT,
                             "the HDF5 weights have more data than the size of the file");
    void *numbers = malloc(record.size + 1);
    if (numbers == NULL)
        return uni_error_set(reading->err, UNI_ENOMEM, "no memory for the dataset /%s",
                             reading->path);
    int status = count == 0 || H5Dread(data, dtype == UNI_I64 ? H5T_NATIVE_INT64 : H5T_NATIVE_FLOAT,
                                       H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers) >= 0
                     ? 0
                     : broken(reading);
    if (status == 0)
        status = uni__send_file_record(reading->fd, &record, reading->path, numbers, reading->err);
    free(numbers);
    return status;
}

/* ---- groups ---- */

static int read_group(struct reading *reading, hid_t group, int depth);

/* By its address and not by its name: a name is looked up in the group once more. */
static int read_object(struct reading *reading, hid_t group, haddr_t address, int depth)
{
    for (int i = 0; i < depth; i++)
        if (reading->above[i] == address)
            return uni_error_set(reading->err, UNI_EFORMAT,
                                 "the group /%s has a link to a group that it is in",
                                 reading->path);
    if (++reading->items > UNI__MAX_ITEMS)
        return uni_error_set(reading->err, UNI_ELIMIT,
                             "the HDF5 weights have more than %d groups and variables",
                             UNI__MAX_ITEMS);
    hid_t object = H5Oopen_by_addr(group, address);
    H5I_type_t type = object >= 0 ? H5Iget_type(object) : H5I_BADID;
    int status;
    if (type == H5I_GROUP) {
        uni__file_record record = { .kind = UNI__ITEM_GROUP };
        status = uni__send_file_record(reading->fd, &record, reading->path, NULL, reading->err);
        reading->above[depth] = address;
        if (status == 0)
            status = depth + 1 < MAX_DEPTH
                         ? read_group(reading, object, depth + 1)
                         : uni_error_set(reading->err, UNI_ELIMIT,
                                         "the groups of the HDF5 weights are nested too deep");
    } else {
        status = type == H5I_DATASET ? read_dataset(reading, object) : broken(reading);
    }
    H5Oclose(object);
    return status;
}

static int read_link(struct reading *reading, hid_t group, const char *name, const H5L_info_t *info,
                     int depth)
{
    size_t length = strlen(reading->path), size = strlen(name);
    if (size == 0 || size >= MAX_NAME ||
        (size_t)snprintf(reading->path + length, sizeof reading->path - length, "%s%s",
                         length > 0 ? "/" : "", name) >= sizeof reading->path - length)
        return uni_error_set(reading->err, UNI_EFORMAT,
                             "the HDF5 weights have a name that cannot be right");
    int status = 0;
    if (info->type != H5L_TYPE_HARD)
        status = uni_error_set(reading->err, UNI_EFORMAT, "/%s is %s link, which is refused",
                               reading->path,
                               info->type == H5L_TYPE_SOFT       ? "a soft"
                               : info->type == H5L_TYPE_EXTERNAL ? "an external"
                                                                 : "an unknown kind of");
    else
        status = read_object(reading, group, info->u.address, depth);
    reading->path[length] = '\0';
    return status;
}

struct listing {
    struct reading *reading;
    int depth, status;
};

static herr_t visit_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    struct listing *listing = context;
    listing->status = read_link(listing->reading, group, name, info, listing->depth);
    return listing->status < 0 ? -1 : 0;
}

/* In one walk: asking for link 0, 1, 2 by its number begins at the first one every time. */
static int read_group(struct reading *reading, hid_t group, int depth)
{
    struct listing listing = { reading, depth, 0 };
    herr_t walked = H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, visit_link, &listing);
    return listing.status < 0 ? listing.status : walked < 0 ? broken(reading) : 0;
}

int uni__hdf5_read(int fd, const void *bytes, size_t size, uni_error *err)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5PLset_loading_state(0);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_core(access, (size_t)1 << 16, 0);
    hid_t file = H5Pset_file_image(access, (void *)bytes, size) >= 0
                     ? H5Fopen("weights", H5F_ACC_RDONLY, access)
                     : -1;
    H5Pclose(access);
    if (file < 0)
        return uni_error_set(err, UNI_EFORMAT, "the weights are not an HDF5 file, or are damaged");
    struct reading *reading = calloc(1, sizeof *reading);
    H5O_info_t root;
    int status = 0;
    if (reading == NULL) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory to read the HDF5 weights");
    } else {
        *reading = (struct reading){ .fd = fd, .file_size = size, .err = err };
        status = H5Oget_info_by_name(file, "/", &root, H5P_DEFAULT) < 0 ? broken(reading) : 0;
        reading->above[0] = status == 0 ? root.addr : 0;
        hid_t group = status == 0 ? H5Gopen2(file, "/", H5P_DEFAULT) : -1;
        if (status == 0)
            status = group >= 0 ? read_group(reading, group, 1) : broken(reading);
        H5Gclose(group);
    }
    free(reading);
    H5Fclose(file);
    return status;
}
