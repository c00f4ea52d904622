/* fuzz_records.c - whatever the child process sends is listed or refused, and nothing that is
 * listed lies outside of it. See base/fuzz.h. */
#include <string.h>
#include "base/fuzz.h"
#include "nn/files/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uni__contents contents = { 0 };
    uni_error err = { 0 };
    uni__text_add(&contents.bytes, data, size);
    int status = uni__contents_list(&contents, &err);
    if (status < 0)
        FUZZ_PROMISE(err.code == status && err.message[0] != '\0');
    for (size_t i = 0; status == 0 && i < contents.count; i++) {
        const uni__item *item = &contents.items[i];
        const char *begin = contents.bytes.data, *end = begin + contents.bytes.size;
        FUZZ_PROMISE(item->path > begin && item->path + strlen(item->path) < end);
        FUZZ_PROMISE((const char *)item->data > item->path &&
                     (const char *)item->data + item->size <= end);
        FUZZ_PROMISE(uni__contents_find(&contents, item->kind, item->path) != NULL);
    }
    uni__contents_free(&contents);
    return 0;
}

size_t fuzz_sample(uint8_t *out, size_t room)
{
    uni__file_record records[] = { { .kind = UNI__ITEM_VARIABLE,
                                     .dtype = UNI_F32,
                                     .ndim = 1,
                                     .path_size = 4,
                                     .shape = { 2 },
                                     .size = 8 },
                                   { .kind = UNI__ITEM_MEMBER, .path_size = 4, .size = 3 } };
    static const char first[] = "a/0\0\1\2\3\4\5\6\7\10", second[] = "b.c\0xyz";
    size_t size = 2 * sizeof records[0] + 12 + 7;
    if (size > room)
        return 0;
    memcpy(out, &records[0], sizeof records[0]);
    memcpy(out + sizeof records[0], first, 12);
    memcpy(out + sizeof records[0] + 12, &records[1], sizeof records[1]);
    memcpy(out + 2 * sizeof records[0] + 12, second, 7);
    return size;
}
