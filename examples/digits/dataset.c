/* dataset.c - reads digits.csv: 64 numbers from 0 to 16 and the digit, one image a line. See
 * dataset.h. */
#include "dataset.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* One line of the file; false when it is anything else than 65 numbers in their ranges. */
static bool read_line(const char *line, float *pixels, uint8_t *label)
{
    char *end = NULL;
    for (int i = 0; i <= DIGITS_PIXELS; i++) {
        long number = strtol(line, &end, 10);
        if (end == line || number < 0 || number > (i < DIGITS_PIXELS ? 16 : DIGITS_CLASSES - 1))
            return false;
        if (i < DIGITS_PIXELS)
            pixels[i] = (float)number / 16.0f;
        else
            *label = (uint8_t)number;
        line = end + (*end == ',');
    }
    return *end == '\n' || *end == '\0';
}

static int read_all(digits_dataset *data, FILE *file, const char *path, uni_error *err)
{
    char line[1024];
    for (int row = 0; fgets(line, sizeof line, file); row++) {
        digits_part *part = row % 5 == 4 ? &data->test : &data->train;
        if (part->count == DIGITS_MAX ||
            !read_line(line, part->pixels[part->count], &part->labels[part->count]))
            return uni_error_set(err, UNI_EFORMAT,
                                 "line %d of %s is not an image: 65 numbers were expected", row + 1,
                                 path);
        part->count++;
    }
    if (data->test.count == 0)
        return uni_error_set(err, UNI_EFORMAT, "%s has fewer than five images", path);
    return 0;
}

int digits_load(digits_dataset **out, const char *path, uni_error *err)
{
    *out = NULL;
    FILE *file = fopen(path, "re");
    if (!file)
        return uni_error_set_errno(
            err, errno, "cannot open the digits in %s (give their place with --data)", path);
    digits_dataset *data = calloc(1, sizeof *data);
    int status = data ? read_all(data, file, path, err)
                      : uni_error_set(err, UNI_ENOMEM, "no memory for the digits");
    fclose(file);
    if (status < 0) {
        free(data);
        return status;
    }
    *out = data;
    return 0;
}
