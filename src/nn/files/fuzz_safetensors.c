/* fuzz_safetensors.c - any bytes are opened or refused; what opens has entries that fill the file
 * exactly and can be read. See base/fuzz.h. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/fuzz.h"
#include "nn/files/safetensors.h"

static void check_entries(const uni__safetensors *file, size_t size)
{
    size_t total = 0;
    for (size_t i = 0; i < uni__safetensors_count(file); i++) {
        const uni__safetensors_entry *entry = uni__safetensors_at(file, i);
        size_t bytes = uni_dtype_size(entry->dtype);
        for (int j = 0; j < entry->ndim; j++)
            bytes *= (size_t)entry->shape[j];
        FUZZ_PROMISE(bytes == entry->size && entry->size <= size);
        FUZZ_PROMISE(uni__safetensors_find(file, entry->name) == entry);
        void *memory = malloc(entry->size + 1);
        FUZZ_PROMISE(memory != NULL && uni__safetensors_read(file, entry, memory, NULL) == 0);
        free(memory);
        total += bytes;
    }
    FUZZ_PROMISE(total < size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("safetensors", MFD_CLOEXEC);
    FUZZ_PROMISE(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    uni__safetensors *file = NULL;
    uni_error err = { 0 };
    int status = uni__safetensors_open(&file, path, &err);
    if (status < 0)
        FUZZ_PROMISE(file == NULL && err.code == status && err.message[0] != '\0');
    else
        check_entries(file, size);
    uni__safetensors_close(file);
    close(fd);
    return 0;
}

size_t fuzz_sample(uint8_t *out, size_t room)
{
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[8,16]},\"__metadata__\":{\"c\":"
        "\"d\"}}";
    size_t length = sizeof header - 1, size = 8 + length + 16;
    if (size > room)
        return 0;
    memset(out, 0, size);
    out[0] = (uint8_t)length;
    memcpy(out + 8, header, length);
    return size;
}
