/*
 * archive_read.c - a .keras file: the members config.json, metadata.json and assets as records, and
 * the records of model.weights.h5.
 *
 * Nothing is ever unpacked to a disk; names that would lead elsewhere, links, encryption, members
 * that claim more than they can have (bombs), two of one name and archives whose directory does not
 * fit their contents are refused all the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zip.h>

#include "nn/keras/internal.h"

#define MAX_MEMBERS 10000
#define MAX_RATIO 100 /* of unpacked to packed; numbers never come near it */
#define SMALL ((zip_uint64_t)1 << 20) /* below it a ratio says nothing */

/* ---- checks ---- */

static int check_name(const char *name, uni_error *err)
{
    size_t length = strlen(name);
    bool bad = length == 0 || length >= UNI__MAX_PATH_SIZE || name[0] == '/' ||
               strchr(name, '\\') != NULL || (length > 1 && name[1] == ':');
    for (const char *part = name; !bad && part != NULL;
         part = strchr(part, '/') != NULL ? strchr(part, '/') + 1 : NULL)
        bad = strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0');
    return bad ? uni_error_set(
                     err, UNI_EFORMAT,
                     "a member of the archive has the name \"%.100s\", a path that would escape",
                     name)
               : 0;
}

static int check_kind(zip_t *archive, zip_uint64_t index, const zip_stat_t *member, uni_error *err)
{
    zip_uint8_t system = 0;
    zip_uint32_t attributes = 0;
    if (zip_file_get_external_attributes(archive, index, 0, &system, &attributes) == 0 &&
        system == ZIP_OPSYS_UNIX) {
        mode_t type = (mode_t)(attributes >> 16) & S_IFMT;
        if (type != 0 && type != S_IFREG && type != S_IFDIR)
            return uni_error_set(
                err, UNI_EFORMAT,
                "the member %.100s of the archive is a symbolic link or a device, which is refused",
                member->name);
    }
    if ((member->valid & ZIP_STAT_ENCRYPTION_METHOD) && member->encryption_method != ZIP_EM_NONE)
        return uni_error_set(err, UNI_EFORMAT, "the member %.100s of the zip archive is encrypted",
                             member->name);
    if (member->comp_method != ZIP_CM_STORE && member->comp_method != ZIP_CM_DEFLATE)
        return uni_error_set(err, UNI_EFORMAT,
                             "the member %.100s of the zip archive is packed by method %u; only "
                             "stored and deflated ones are read",
                             member->name, member->comp_method);
    return 0;
}

static int check_size(const zip_stat_t *member, size_t file_size, zip_uint64_t *total,
                      uni_error *err)
{
    bool stored = member->comp_method == ZIP_CM_STORE;
    if (member->comp_size > file_size || (stored && member->size != member->comp_size))
        return uni_error_set(
            err, UNI_EFORMAT,
            "the member %.100s claims a size of %llu bytes (%llu in the archive), which cannot be",
            member->name, (unsigned long long)member->size, (unsigned long long)member->comp_size);
    if (member->size > SMALL && member->size / MAX_RATIO > member->comp_size)
        return uni_error_set(err, UNI_ELIMIT,
                             "the member %.100s is compressed from %llu bytes to %llu: such a "
                             "ratio is refused as a bomb",
                             member->name, (unsigned long long)member->size,
                             (unsigned long long)member->comp_size);
    *total += member->size;
    if (*total > (zip_uint64_t)MAX_RATIO * file_size + SMALL)
        return uni_error_set(err, UNI_ELIMIT, "the members of the archive are too large together");
    return 0;
}

static int check_members(zip_t *archive, size_t file_size, uni_error *err)
{
    zip_int64_t count = zip_get_num_entries(archive, 0);
    zip_uint64_t total = 0;
    if (count > MAX_MEMBERS)
        return uni_error_set(err, UNI_ELIMIT, "the archive has %lld members", (long long)count);
    for (zip_int64_t i = 0; i < count; i++) {
        zip_stat_t member;
        if (zip_stat_index(archive, (zip_uint64_t)i, 0, &member) < 0 ||
            (member.valid &
             (ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD)) !=
                (ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD))
            return uni_error_set(err, UNI_EFORMAT,
                                 "member %lld of the zip archive has no name or no size",
                                 (long long)i);
        UNI_TRY(check_name(member.name, err));
        UNI_TRY(check_kind(archive, (zip_uint64_t)i, &member, err));
        UNI_TRY(check_size(&member, file_size, &total, err));
        if (zip_name_locate(archive, member.name, ZIP_FL_ENC_RAW) != i)
            return uni_error_set(err, UNI_EFORMAT,
                                 "the archive has two members (a duplicate) of the name %.100s",
                                 member.name);
    }
    return 0;
}

/* ---- reading ---- */

/* Whole and with its checksum right; malloc'ed. */
static int read_member(zip_t *archive, zip_int64_t index, void **out, size_t *size, uni_error *err)
{
    zip_stat_t member;
    if (zip_stat_index(archive, (zip_uint64_t)index, 0, &member) < 0)
        return uni_error_set(err, UNI_EFORMAT, "the zip archive cannot be read: %s",
                             zip_strerror(archive));
    char *bytes = malloc((size_t)member.size + 1);
    if (bytes == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %.100s of %llu bytes", member.name,
                             (unsigned long long)member.size);
    zip_file_t *file = zip_fopen_index(archive, (zip_uint64_t)index, 0);
    size_t done = 0;
    zip_int64_t got = file != NULL ? 1 : -1;
    while (got > 0 && done <= member.size) {
        got = zip_fread(file, bytes + done,
                        member.size + 1 -
                            done); /* one more: the end must be where it is said to be */
        done += got > 0 ? (size_t)got : 0;
    }
    bool closed = file != NULL && zip_fclose(file) == 0;
    if (got < 0 || !closed || done != member.size) {
        free(bytes);
        return uni_error_set(
            err, UNI_EFORMAT,
            "the member %.100s of the zip archive is damaged (its size or its checksum is wrong)",
            member.name);
    }
    *out = bytes;
    *size = done;
    return 0;
}

static bool is_wanted(const char *name)
{
    size_t length = strlen(name);
    return name[length - 1] != '/' &&
           (strcmp(name, "config.json") == 0 || strcmp(name, "metadata.json") == 0 ||
            strncmp(name, "assets/", 7) == 0);
}

static int send_members(int fd, zip_t *archive, uni_error *err)
{
    zip_int64_t count = zip_get_num_entries(archive, 0);
    for (zip_int64_t i = 0; i < count; i++) {
        const char *name = zip_get_name(archive, (zip_uint64_t)i, ZIP_FL_ENC_RAW);
        if (name == NULL || !is_wanted(name))
            continue;
        void *bytes = NULL;
        size_t size = 0;
        UNI_TRY(read_member(archive, i, &bytes, &size, err));
        uni__file_record record = { .kind = UNI__ITEM_MEMBER, .size = size };
        int status = uni__send_file_record(fd, &record, name, bytes, err);
        free(bytes);
        UNI_TRY(status);
    }
    return 0;
}

static int send_weights(int fd, zip_t *archive, uni_error *err)
{
    zip_int64_t index = zip_name_locate(archive, "model.weights.h5", ZIP_FL_ENC_RAW);
    void *bytes = NULL;
    size_t size = 0;
    UNI_TRY(read_member(archive, index, &bytes, &size, err));
    int status = uni__hdf5_read(fd, bytes, size, err);
    if (status < 0)
        uni_error_prefix(err, "model.weights.h5");
    free(bytes);
    return status;
}

static int read_all(int fd, zip_t *archive, size_t file_size, uni_error *err)
{
    static const char *const needed[] = { "config.json", "model.weights.h5" };
    UNI_TRY(check_members(archive, file_size, err));
    for (size_t i = 0; i < 2; i++)
        if (zip_name_locate(archive, needed[i], ZIP_FL_ENC_RAW) < 0)
            return uni_error_set(err, UNI_EFORMAT, "%s is missing in the archive", needed[i]);
    UNI_TRY(send_members(fd, archive, err));
    return send_weights(fd, archive, err);
}

int uni__archive_read(int fd, const void *bytes, size_t size, uni_error *err)
{
    zip_error_t failure;
    zip_error_init(&failure);
    zip_source_t *source = zip_source_buffer_create(bytes, size, 0, &failure);
    zip_t *archive =
        source != NULL ? zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &failure) : NULL;
    if (archive == NULL) {
        zip_source_free(source);
        return uni_error_set(err, UNI_EFORMAT, "it is not a zip archive, or is damaged%s: %s",
                             size == 0 ? " (it is empty)" : "", zip_error_strerror(&failure));
    }
    int status = read_all(fd, archive, size, err);
    zip_discard(archive);
    return status;
}
