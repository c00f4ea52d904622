/*
 * state.c - the file with the state of all ranks (state.h). Sections are copied as received, so
 * writing does not decode. Any thread.
 */
#include "checkpoint/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "base/file.h"
#include "base/msgpack.h"
#include "checkpoint/internal.h"

static int bad(uni_error *err, const char *what)
{
    return uni_error_set(err, UNI_EFORMAT, "the state of a checkpoint is not valid: %s", what);
}

int uni__state_check(const void *section, size_t size, uni_error *err)
{
    uni__cursor cursor = { .at = section, .end = (const uint8_t *)section + size };
    uni__token token;
    UNI_TRY(uni__cursor_next(&cursor, &token, err));
    if (token.type != UNI_TYPE_DICT)
        return bad(err, "a rank's section is not a map");
    for (size_t left = token.size; left > 0; left--) {
        UNI_TRY(uni__cursor_next(&cursor, &token, err));
        if (token.type != UNI_TYPE_STRING)
            return bad(err, "a name is not text");
        UNI_TRY(uni__cursor_next(&cursor, &token, err));
        if (token.type != UNI_TYPE_BYTES)
            return bad(err, "a value is not bytes");
    }
    return cursor.at == cursor.end ? 0 : bad(err, "a rank's section is followed by other bytes");
}

static void pack_text(uni__packer *packer, const char *text)
{
    uni__pack_string(packer, text, strlen(text));
}

int uni__state_pack(void **out, size_t *size, const uni__state_section *sections, int count,
                    uni_error *err)
{
    uni__packer packer = { 0 };
    bool any = false;
    *out = NULL;
    *size = 0;
    for (int i = 0; i < count; i++)
        any |= sections[i].size > 1; /* an empty map is one byte */
    if (!any)
        return 0;
    uni__pack_map(&packer, 3);
    pack_text(&packer, "format");
    pack_text(&packer, "unisono state");
    pack_text(&packer, "version");
    uni__pack_int(&packer, UNI__STATE_VERSION);
    pack_text(&packer, "ranks");
    uni__pack_list(&packer, (size_t)count);
    for (int i = 0; i < count; i++)
        if (sections[i].bytes)
            uni__pack_raw(&packer, sections[i].bytes, sections[i].size);
        else
            uni__pack_map(&packer, 0);
    if (packer.overflow || packer.size > UNI__STATE_FILE_MAX) {
        bool large = packer.size > UNI__STATE_FILE_MAX;
        uni__packer_free(&packer);
        return large ? uni_error_set(err, UNI_ELIMIT,
                                     "the state of %d ranks is larger than 1 GiB: keep large data "
                                     "in the checkpoint itself",
                                     count)
                     : uni_error_set(err, UNI_ENOMEM, "no memory for the state of %d ranks", count);
    }
    *out = packer.data;
    *size = packer.size;
    return 0;
}

static int check_tree(const uni_value *tree, uni_error *err)
{
    const uni_value *ranks = uni_dict_get(tree, "ranks");
    int64_t version = uni_dict_get_int(tree, "version", 0);
    if (strcmp(uni_dict_get_string(tree, "format", ""), "unisono state") != 0)
        return bad(err, "\"format\" is not \"unisono state\"");
    if (version != UNI__STATE_VERSION)
        return uni_error_set(err, UNI_EVERSION,
                             "the state of a checkpoint has version %lld, this program reads %d; "
                             "use the unisono that wrote it",
                             (long long)version, UNI__STATE_VERSION);
    if (uni_value_type_of(ranks) != UNI_TYPE_LIST)
        return bad(err, "\"ranks\" is missing");
    for (size_t rank = 0; rank < uni_list_size(ranks); rank++) {
        const uni_value *section = uni_list_get(ranks, rank);
        if (uni_value_type_of(section) != UNI_TYPE_DICT)
            return bad(err, "a rank's section is not a map");
        for (size_t i = 0; i < uni_dict_size(section); i++)
            if (uni_value_type_of(uni_dict_value_at(section, i)) != UNI_TYPE_BYTES)
                return bad(err, "a value is not bytes");
    }
    return 0;
}

int uni__state_unpack(uni_value **out, const void *bytes, size_t size, uni_error *err)
{
    uni_value *tree = NULL;
    *out = NULL;
    UNI_TRY(uni__msgpack_read(&tree, bytes, size, err));
    int status = check_tree(tree, err);
    if (status == 0 && !(*out = uni_value_copy(uni_dict_get(tree, "ranks"))))
        status = uni_error_set(err, UNI_ENOMEM, "no memory for the state of a checkpoint");
    uni_value_free(tree);
    return status;
}

int uni__checkpoint_read_state(uni_value **out, const uni_checkpoint *checkpoint, uni_error *err)
{
    const uni__manifest_file *file = uni__manifest_find(&checkpoint->manifest, UNI__STATE_NAME);
    char *text = NULL, sum[17];
    size_t size = 0;
    *out = NULL;
    if (!file)
        return 0;
    char *path = uni__path_join(checkpoint->path, UNI__STATE_NAME, NULL);
    int status = path ? uni__read_unlinked(&text, &size, path, UNI__STATE_FILE_MAX, err)
                      : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    if (status == 0) {
        uni__hash_bytes(text, size, sum);
        status = strcmp(sum, file->xxh3) == 0
                     ? uni__state_unpack(out, text, size, err)
                     : uni_error_set(err, UNI_ECORRUPT, "its bytes are not those that were saved");
    }
    if (status < 0)
        uni_error_prefix(err, "%s/%s", checkpoint->path, UNI__STATE_NAME);
    free(text);
    free(path);
    return status;
}
