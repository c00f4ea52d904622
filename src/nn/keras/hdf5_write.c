/*
 * hdf5_write.c - groups with their names and dense datasets as an HDF5 file in memory, as h5py
 * writes them (the earliest format version, names as UTF-8 strings of variable length), which is
 * what Keras reads.
 */
#include <hdf5.h>
#include <stdlib.h>

#include "nn/keras/internal.h"

/* Of this process, which is ours alone: no stack traces on stderr, and no plug-ins. */
static void silence(void)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5PLset_loading_state(0);
}

static int write_name(hid_t group, const char *name)
{
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    hid_t attribute = H5Acreate2(group, "name", type, space, H5P_DEFAULT, H5P_DEFAULT);
    int status = attribute >= 0 && H5Awrite(attribute, type, &name) >= 0 ? 0 : UNI_EIO;
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
    return status;
}

static int write_group(hid_t file, hid_t links, const uni__h5_group *from, uni_error *err)
{
    hid_t group = H5Gcreate2(file, from->path, links, H5P_DEFAULT, H5P_DEFAULT);
    int status = group >= 0 ? write_name(group, from->name) : UNI_EIO;
    H5Gclose(group);
    return status < 0 ? uni_error_set(err, status, "HDF5 cannot make the group %s", from->path) : 0;
}

static int write_variable(hid_t file, hid_t links, const uni__h5_variable *from, uni_error *err)
{
    hsize_t shape[UNI_MAX_DIMS];
    size_t count = 1;
    for (int i = 0; i < from->ndim; i++) {
        shape[i] = (hsize_t)from->shape[i];
        count *= (size_t)from->shape[i];
    }
    bool integer = from->dtype == UNI_I64;
    hid_t space =
        from->ndim > 0 ? H5Screate_simple(from->ndim, shape, NULL) : H5Screate(H5S_SCALAR);
    hid_t data = H5Dcreate2(file, from->path, integer ? H5T_STD_I64LE : H5T_IEEE_F32LE, space,
                            links, H5P_DEFAULT, H5P_DEFAULT);
    bool written =
        data >= 0 && (count == 0 || H5Dwrite(data, integer ? H5T_NATIVE_INT64 : H5T_NATIVE_FLOAT,
                                             H5S_ALL, H5S_ALL, H5P_DEFAULT, from->data) >= 0);
    H5Dclose(data);
    H5Sclose(space);
    return written ? 0
                   : uni_error_set(err, UNI_EIO, "HDF5 cannot write the variable %s", from->path);
}

static int take_image(hid_t file, void **out, size_t *size, uni_error *err)
{
    ssize_t needed = H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0 ? H5Fget_file_image(file, NULL, 0) : -1;
    void *image = needed > 0 ? malloc((size_t)needed) : NULL;
    if (image == NULL || H5Fget_file_image(file, image, (size_t)needed) != needed) {
        free(image);
        return uni_error_set(err, UNI_ENOMEM, "HDF5 cannot give the file's image");
    }
    *out = image;
    *size = (size_t)needed;
    return 0;
}

int uni__hdf5_image(void **out, size_t *size, const uni__h5_contents *contents, uni_error *err)
{
    silence();
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_fapl_core(access, (size_t)1 << 20, 0);
    H5Pset_create_intermediate_group(links, 1);
    hid_t file = H5Fcreate("weights", H5F_ACC_TRUNC, H5P_DEFAULT, access);
    int status = file >= 0 ? 0 : uni_error_set(err, UNI_EIO, "HDF5 cannot make a file in memory");
    for (size_t i = 0; status == 0 && i < contents->num_groups; i++)
        status = write_group(file, links, &contents->groups[i], err);
    for (size_t i = 0; status == 0 && i < contents->num_variables; i++)
        status = write_variable(file, links, &contents->variables[i], err);
    if (status == 0)
        status = take_image(file, out, size, err);
    H5Fclose(file);
    H5Pclose(links);
    H5Pclose(access);
    return status;
}
