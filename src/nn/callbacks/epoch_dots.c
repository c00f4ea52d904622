/*
 * epoch_dots.c - tfdocs' EpochDots: a dot per epoch, and at intervals a line with all values. Fit's
 * thread.
 */
#include "nn/callbacks/callback.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

struct dots {
    int fd, report_every, dot_every;
    uni__text text;
};

static int compare(const void *a, const void *b, void *logs)
{
    const char *const *names = ((const uni_logs *)logs)->names;
    return strcmp(names[*(const size_t *)a], names[*(const size_t *)b]);
}

static void put_report(struct dots *dots, int epoch, const uni_logs *logs)
{
    size_t order[64], count = logs->count < 64 ? logs->count : 64;
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    qsort_r(order, count, sizeof *order, compare, (void *)(uintptr_t)logs);
    uni__text_add_format(&dots->text, "\nEpoch: %d, ", epoch);
    for (size_t i = 0; i < count; i++)
        uni__text_add_format(&dots->text, "%s:%0.4f,  ", logs->names[order[i]],
                             logs->values[order[i]]);
    uni__text_add_string(&dots->text, "\n");
}

static int epoch_end(void *self, uni_model *model, int epoch, const uni_logs *logs, uni_error *err)
{
    struct dots *dots = self;
    uni__text_clear(&dots->text);
    if (epoch % dots->report_every == 0)
        put_report(dots, epoch, logs);
    if (epoch % dots->dot_every == 0)
        uni__text_add_string(&dots->text, ".");
    if (dots->text.failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the line of an epoch");
    if (dots->text.size > 0)
        uni__print_fd(dots->fd, "%s", dots->text.data);
    return 0;
}

static void free_dots(void *self)
{
    uni__text_free(&((struct dots *)self)->text);
    free(self);
}

static const uni_callback_class dots_class = { .name = "EpochDots",
                                               .epoch_end = epoch_end,
                                               .free = free_dots };

int uni_callback_epoch_dots(uni_callback **out, int fd, int report_every, int dot_every,
                            uni_error *err)
{
    *out = NULL;
    if (report_every < 0 || dot_every < 0)
        return uni_error_set(err, UNI_EINVAL,
                             "EpochDots: report_every and dot_every must not be negative");
    struct dots *dots = uni__callback_make(out, &dots_class, sizeof *dots, err);
    if (dots == NULL)
        return UNI_ENOMEM;
    *dots = (struct dots){ .fd = fd,
                           .report_every = report_every > 0 ? report_every : 100,
                           .dot_every = dot_every > 0 ? dot_every : 1 };
    return 0;
}
