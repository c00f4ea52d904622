/* fuzz_npy.c - any bytes are read or rejected as the header of a .npy file or the directory of a
 * .npz archive. See base/fuzz.h. */
#include <string.h>
#include "base/fuzz.h"
#include "data/sources/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uni__npy npy;
    uni__npz_member members[8];
    uni_error err = { 0 };
    int64_t need = -1;
    if (uni__npy_parse(&npy, data, size, "fuzz", &err) == 0) {
        size_t elements = 1;
        FUZZ_PROMISE(npy.ndim >= 0 && npy.ndim <= UNI_MAX_DIMS && npy.data <= (int64_t)size);
        for (int i = 0; i < npy.ndim; i++)
            elements *= (size_t)npy.shape[i];
        FUZZ_PROMISE(elements * uni_dtype_size(npy.dtype) == npy.bytes);
    } else {
        FUZZ_PROMISE(err.message[0] != 0);
    }
    int count = uni__npz_parse(members, 8, data, size, 0, &need, "fuzz", &err);
    FUZZ_PROMISE(count <= 8);
    for (int i = 0; i < count; i++)
        FUZZ_PROMISE(memchr(members[i].name, 0, sizeof members[i].name) != NULL);
    return 0;
}

size_t fuzz_sample(uint8_t *out, size_t room)
{
    static const char sample[] =
        "\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }      "
        "    \n"
        /* A directory of one member with all its numbers in the ZIP64 extra field. */
        "PK\x01\x02\x2d\x00\x2d\x00\x00\x00\x00\x00\x00\x00\x21\x00\x00\x00\x00\x00\xff\xff\xff\xff"
        "\xff\xff\xff\xff\x05\x00\x1c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"
        "a.npy\x01\x00\x18\x00\x10\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00"
        "\x00\x00\x00\x00\x00\x00\x00\x00"
        /* The ZIP64 end record, its locator, and the end record. */
        "PK\x06\x06\x2c\x00\x00\x00\x00\x00\x00\x00\x2d\x00\x2d\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        "\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"
        "\x4f\x00\x00\x00\x00\x00\x00\x00\x50\x00\x00\x00\x00\x00\x00\x00"
        "PK\x06\x07\x00\x00\x00\x00\x9f\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00"
        "PK\x05\x06\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00";
    return fuzz_copy(out, room, sample, sizeof sample - 1);
}
