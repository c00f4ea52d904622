/*
 * image.c - JPEG and PNG files as rows. This is an indexed source with one file per row. If bad
 * rows are skipped, files are read in blocks of 16 instead, because a block may have fewer rows
 * than files. A file's first bytes, not its name, decide which library decodes it. Any thread.
 */
#include <unisono/data_readers.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plugin.h"
#include "data/sources/build.h"
#include "data/sources/image_pixels.h"
#include "data/sources/image_plugin.h"
#include "base/options.h"

#define FILES_A_BLOCK 16
#define MAX_FILE ((int64_t)128 << 20)
#define LARGE ((size_t)8 << 20) /* decoded size from which images are decoded one at a time */
/* Memory limit for one image; the rest of a dataset's budget holds the rows. */
#define MOST ((size_t)224 << 20)

typedef struct images {
    uni__files *files;
    uni_table *schema;
    int64_t *labels; /* of each file, or NULL */
    int height, width, channels;
    bool resize, rescale;
    pthread_mutex_t large; /* held while a large image is decoded */
    int path_column, label_column; /* -1: none */
} images;

static const uni__plugin jpeg = { .file = "libunisono-jpeg.so",
                                  .symbol = UNI__IMAGE_PLUGIN_SYMBOL,
                                  .version = UNI__IMAGE_PLUGIN_VERSION,
                                  .built = "src/data/sources",
                                  .purpose = "reading JPEG images",
                                  .packages = "the Debian package libturbojpeg0" };
static const uni__plugin png = { .file = "libunisono-png.so",
                                 .symbol = UNI__IMAGE_PLUGIN_SYMBOL,
                                 .version = UNI__IMAGE_PLUGIN_VERSION,
                                 .built = "src/data/sources",
                                 .purpose = "reading PNG images",
                                 .packages = "the Debian package libpng16-16" };

/* Returns 1 with *decoder and *size, 0 if the image is bad (why), or an error if the library is
 * missing. */
static int look_at(const uint8_t *bytes, size_t count, const uni__image_plugin **decoder,
                   uni__image_size *size, char *why, uni_error *err)
{
    const void *table = NULL;
    if (count > 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0) {
        UNI_TRY(uni__plugin_open(&table, &jpeg, err));
    } else if (count > 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0) {
        UNI_TRY(uni__plugin_open(&table, &png, err));
    } else {
        strcpy(why, "neither JPEG nor PNG");
        return 0;
    }
    *decoder = table;
    if ((*decoder)->size(bytes, count, size, why) < 0)
        return 0;
    if (size->width < 1 || size->height < 1 || size->width > UNI__IMAGE_MAX_SIDE ||
        size->height > UNI__IMAGE_MAX_SIDE ||
        (size_t)size->width * (size_t)size->height > UNI__IMAGE_MAX_PIXELS) {
        strcpy(why, "an image that is too large (more than 32768 a side or 2^28 pixels)");
        return 0;
    }
    return 1;
}

static int load(const uni__files *files, int64_t file, uni__reader *reader, const uint8_t **bytes,
                uni_error *err)
{
    const uni__file *item = &files->items[file];
    if (item->size > MAX_FILE)
        return uni_error_set(err, UNI_ELIMIT, "%s is larger than 512 MiB", item->path);
    void *to = uni__reader_scratch(reader, UNI__SCRATCH_IMAGE_FILE, (size_t)item->size + 1);
    if (to == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to read %s", item->path);
    *bytes = to;
    return uni__files_pread(files, (int)file, 0, to, (size_t)item->size, err);
}

/* Returns 1, 0 if the image is bad, or an error. work: bytes for scaling; 0: no scaling. */
static int decode_into(const images *self, uni__reader *reader, const uint8_t *bytes, size_t count,
                       const uni__image_plugin *decoder, const uni__image_size *size, size_t work,
                       uint8_t *out, char *why, uni_error *err)
{
    size_t pixels = (size_t)size->width * (size_t)size->height;
    bool same = size->channels == self->channels, fits = work == 0;
    uint8_t *raw = same && fits ? out
                                : uni__reader_scratch(reader, UNI__SCRATCH_IMAGE_DECODED,
                                                      pixels * (size_t)size->channels);
    uint8_t *converted = same   ? raw
                         : fits ? out
                                : uni__reader_scratch(reader, UNI__SCRATCH_IMAGE_CONVERTED,
                                                      pixels * (size_t)self->channels);
    float *space = fits ? NULL : uni__reader_scratch(reader, UNI__SCRATCH_IMAGE_WORK, work);
    if (raw == NULL || converted == NULL || (!fits && space == NULL))
        return uni_error_set(err, UNI_ENOMEM, "no memory for an image");
    if (decoder->decode(bytes, count, size, raw, why) < 0)
        return 0;
    if (!same)
        uni__pixels_convert(raw, size->channels, converted, self->channels, pixels);
    if (!fits)
        uni__pixels_resize(converted, size->height, size->width, self->channels, out, self->height,
                           self->width, space);
    return 1;
}

/* Decodes into `out` with our channels and size. Returns 1, 0 if the image is bad, or an error. */
static int decode(const images *self, uni__reader *reader, const uint8_t *bytes, size_t count,
                  uint8_t *out, char *why, uni_error *err)
{
    const uni__image_plugin *decoder = NULL;
    uni__image_size size;
    int good = look_at(bytes, count, &decoder, &size, why, err);
    if (good <= 0)
        return good;
    bool fits = size.height == self->height && size.width == self->width;
    if (!fits && !self->resize) {
        snprintf(why, UNI__IMAGE_WHY_SIZE,
                 "an image of %d by %d (height, width) among those of %d by %d; give height and "
                 "width to scale them",
                 size.height, size.width, self->height, self->width);
        return 0;
    }
    size_t pixels = (size_t)size.width * (size_t)size.height;
    bool same = size.channels == self->channels;
    size_t work = fits ? 0
                       : sizeof(float) * uni__pixels_work(size.height, size.width, self->height,
                                                          self->width, self->channels);
    size_t needed = count + pixels * (size_t)size.channels + size.needs + work +
                    (fits || same ? 0 : pixels * (size_t)self->channels);
    if (needed > MOST) {
        snprintf(why, UNI__IMAGE_WHY_SIZE,
                 "an image of %d by %d (height, width), which needs %zu MiB to decode: more than "
                 "%zu; scale it down first",
                 size.height, size.width, needed >> 20, MOST >> 20);
        return 0;
    }
    bool large = needed > LARGE;
    if (large)
        pthread_mutex_lock((pthread_mutex_t *)&self->large);
    good = decode_into(self, reader, bytes, count, decoder, &size, work, out, why, err);
    if (large) {
        for (int i = UNI__SCRATCH_IMAGE_DECODED; i <= UNI__SCRATCH_IMAGE_WORK; i++)
            uni__reader_release(reader, (uni__scratch)i);
        pthread_mutex_unlock((pthread_mutex_t *)&self->large);
    }
    return good;
}

static int put_image(const images *self, uni__build *build, int64_t file, uni_error *err)
{
    const uni__file *item = &self->files->items[file];
    size_t size = (size_t)self->height * (size_t)self->width * (size_t)self->channels;
    const uint8_t *bytes = NULL;
    char why[UNI__IMAGE_WHY_SIZE + 100] = "";
    UNI_TRY(load(self->files, file, build->reader, &bytes, err));
    void *to = uni__build_row(build, 0);
    uint8_t *pixels =
        self->rescale ? uni__reader_scratch(build->reader, UNI__SCRATCH_IMAGE_UNSCALED, size) : to;
    if (pixels == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for an image");
    int good = decode(self, build->reader, bytes, (size_t)item->size, pixels, why, err);
    if (good < 0)
        return good;
    if (good == 0) {
        uni__build_drop_row(build);
        return uni__reader_bad(build->reader, err, item->path, 0, 0, "%s", why);
    }
    for (size_t i = 0; self->rescale && i < size; i++)
        ((float *)to)[i] = (float)pixels[i] * (1.0f / 255);
    if (self->label_column >= 0)
        (void)uni__build_put_int(build, self->label_column, 0, self->labels[file]);
    if (self->path_column >= 0)
        UNI_TRY(
            uni__build_put_bytes(build, self->path_column, item->path, strlen(item->path), err));
    return uni__build_end_row(build, err);
}

static int read_rows(void *self, uni__reader *reader, const int64_t *rows, int64_t count,
                     uni_table **out, uni_error *err)
{
    uni__build build;
    int status = 0;
    UNI_TRY(uni__build_begin(&build, reader, ((images *)self)->schema, count, count * 64, err));
    for (int64_t i = 0; i < count; i++) {
        UNI_TRY_GOTO(uni__reader_is_wanted(reader, err), fail);
        UNI_TRY_GOTO(put_image(self, &build, rows[i], err), fail);
    }
    return uni__build_finish(&build, out, err);
fail:
    uni__build_free(&build);
    return status;
}

static int read_block(void *self_, uni__reader *reader, int64_t block, uni_table **out,
                      uni_error *err)
{
    images *self = self_;
    int64_t rows[FILES_A_BLOCK], count = 0, first = block * FILES_A_BLOCK;
    for (; count < FILES_A_BLOCK && first + count < self->files->count; count++)
        rows[count] = first + count;
    return read_rows(self, reader, rows, count, out, err);
}

static void row_place(void *self_, int64_t index, uni__place *out)
{
    const uni__file *file = &((const images *)self_)->files->items[index];
    *out = (uni__place){ .file = file->path, .end = file->size, .rows = 1, .unit = "bytes" };
}

static void block_place(void *self, int64_t index, uni__place *out)
{
    row_place(self, index * FILES_A_BLOCK, out);
    out->rows = -1;
}

static void images_free(void *self_)
{
    images *self = self_;
    pthread_mutex_destroy(&self->large);
    uni__files_free(self->files);
    uni_table_unref(self->schema);
    free(self->labels);
    free(self);
}

/* ---- labels: the sorted folder names ---- */

static char *folder_of(const char *path)
{
    const char *end = strrchr(path, '/');
    if (end == NULL)
        return strdup(".");
    const char *begin = end;
    while (begin > path && begin[-1] != '/')
        begin--;
    return strndup(begin, (size_t)(end - begin));
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists each file's folder, and the distinct folders in order. The caller owns both lists and their
 * strings (free_names). */
static int find_folders(const uni__files *files, char ***folders, char ***different, size_t *count,
                        uni_error *err)
{
    size_t size = (size_t)files->count;
    *folders = calloc(size, sizeof **folders);
    *different = calloc(size, sizeof **different);
    *count = 0;
    if (*folders == NULL || *different == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for labels");
    for (size_t i = 0; i < size; i++)
        if (((*folders)[i] = folder_of(files->items[i].path)) == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for labels");
    memcpy(*different, *folders, size * sizeof **different);
    qsort(*different, size, sizeof **different, by_text);
    for (size_t i = 0; i < size; i++)
        if (*count == 0 || strcmp((*different)[*count - 1], (*different)[i]) != 0)
            (*different)[(*count)++] = (*different)[i];
    return 0;
}

static void free_folders(const uni__files *files, char **folders, char **different)
{
    for (int i = 0; folders != NULL && i < files->count; i++)
        free(folders[i]);
    free(folders);
    free(different);
}

static int find_labels(images *self, uni_error *err)
{
    char **folders = NULL, **different = NULL;
    size_t count = 0;
    int status = find_folders(self->files, &folders, &different, &count, err);
    if (status == 0) {
        self->labels = calloc((size_t)self->files->count, sizeof *self->labels);
        if (self->labels == NULL)
            status = uni_error_set(err, UNI_ENOMEM, "no memory for labels");
    }
    for (int i = 0; status == 0 && i < self->files->count; i++)
        self->labels[i] =
            (char **)bsearch(&folders[i], different, count, sizeof *different, by_text) - different;
    free_folders(self->files, folders, different);
    return status;
}

static const char *const suffixes[] = { ".jpg", ".jpeg", ".png", NULL };

int uni_image_labels(uni_value **out, int num_paths, const char *const *paths, uni_error *err)
{
    uni__files *files = NULL;
    char **folders = NULL, **different = NULL;
    size_t count = 0;
    *out = NULL;
    UNI_TRY(uni__files_open(&files, num_paths, paths, suffixes, err));
    int status = find_folders(files, &folders, &different, &count, err);
    uni_value *list = uni_value_list();
    for (size_t i = 0; status == 0 && i < count; i++)
        if (uni_list_take(list, uni_value_string(different[i])) < 0)
            status = uni_error_set(err, UNI_ENOMEM, "no memory for labels");
    free_folders(files, folders, different);
    uni__files_free(files);
    if (status < 0)
        uni_value_free(list);
    else
        *out = list;
    return status;
}

/* ---- constructors ---- */

/* The first good image defines what the options leave open. */
static int look_at_first(images *self, bool skip, uni_error *err)
{
    char why[UNI__IMAGE_WHY_SIZE + 100] = "";
    uni__reader *reader = NULL;
    const uni__image_plugin *decoder = NULL;
    uni__image_size size = { 0 };
    int good = 0, status = 0;
    UNI_TRY(uni__reader_new(&reader, false, err));
    for (int i = 0; i < self->files->count && good == 0; i++) {
        const uint8_t *bytes = NULL;
        UNI_TRY_GOTO(load(self->files, i, reader, &bytes, err), done);
        good = look_at(bytes, (size_t)self->files->items[i].size, &decoder, &size, why, err);
        status = good < 0 ? good : 0;
        if (good == 0 && (!skip || i + 1 == self->files->count))
            status = uni_error_set(err, UNI_EFORMAT, "%s: %s", self->files->items[i].path, why);
        if (status < 0)
            goto done;
    }
    if (!self->resize) {
        self->height = size.height;
        self->width = size.width;
    }
    if (self->channels == 0) /* grey with alpha becomes RGBA */
        self->channels = size.channels == 2 ? 4 : size.channels;
done:
    uni__reader_free(reader);
    return status;
}

static int make_schema(images *self, const uni_image_options *o, uni_error *err)
{
    uni_field fields[3] = { { .name = "image",
                              .kind = UNI_FIELD_NUMBER,
                              .dtype = self->rescale ? UNI_F32 : UNI_U8,
                              .ndim = 3,
                              .shape = { self->height, self->width, self->channels } } };
    int count = 1;
    self->label_column = self->path_column = -1;
    if (o->labels) {
        self->label_column = count;
        fields[count++] =
            (uni_field){ .name = "label", .kind = UNI_FIELD_NUMBER, .dtype = UNI_I64 };
    }
    if (o->include_paths) {
        self->path_column = count;
        fields[count++] = (uni_field){ .name = "path", .kind = UNI_FIELD_STRING, .dtype = UNI_U8 };
    }
    return uni__build_schema(&self->schema, fields, count, err);
}

int uni_dataset_read_images(uni_dataset **out, int num_paths, const char *const *paths,
                            const uni_image_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_image_options, options, bad, err);
    static const uni__source_class indexed = {
        .name = "images", .read_rows = read_rows, .place = row_place, .free = images_free
    };
    static const uni__source_class blocks = {
        .name = "images", .read_block = read_block, .place = block_place, .free = images_free
    };
    uni_image_options o = *options;
    int status = 0;
    if ((o.height > 0) != (o.width > 0) || o.height < 0 || o.width < 0 ||
        o.height > UNI__IMAGE_MAX_SIDE || o.width > UNI__IMAGE_MAX_SIDE || o.channels < 0 ||
        o.channels == 2 || o.channels > 4)
        return uni_error_set(err, UNI_EINVAL,
                             "images need both height and width (1 to 32768) or neither, and 1, 3 "
                             "or 4 channels; got %d, %d and %d",
                             o.height, o.width, o.channels);
    images *self = calloc(1, sizeof *self);
    if (self == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    *self = (images){ .height = o.height,
                      .width = o.width,
                      .channels = o.channels,
                      .resize = o.height > 0,
                      .rescale = o.rescale };
    pthread_mutex_init(&self->large, NULL);
    UNI_TRY_GOTO(uni__files_open(&self->files, num_paths, paths, suffixes, err), fail);
    UNI_TRY_GOTO(look_at_first(self, o.bad.skip, err), fail);
    UNI_TRY_GOTO(make_schema(self, &o, err), fail);
    if (o.labels)
        UNI_TRY_GOTO(find_labels(self, err), fail);
    int64_t count = self->files->count;
    uni__source source = { .class_ = o.bad.skip ? &blocks : &indexed,
                           .self = self,
                           .kind = o.bad.skip ? UNI__SOURCE_SPLIT : UNI__SOURCE_INDEXED,
                           .schema = uni_table_ref(self->schema),
                           .num_rows = o.bad.skip ? -1 : count,
                           .num_blocks = (count + FILES_A_BLOCK - 1) / FILES_A_BLOCK,
                           .bytes = self->files->bytes,
                           .row_bytes = (int64_t)self->height * self->width * self->channels *
                                        (o.rescale ? 4 : 1) };
    return uni__dataset_from_source(out, &source, &o.bad, err);
fail:
    images_free(self);
    return status;
}
