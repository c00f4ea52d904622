/*
 * progress.c - the progress sink: a live block on a terminal, one line per report in a pipe.
 *
 * Terminal: the block (progress_bar.c) is redrawn on every tick, in one write: up by the rows that
 * it occupies, each line with "erase to the end of the line". The cursor always rests at the start
 * of the line below the block and no terminal mode is ever changed, so there is nothing to restore,
 * whatever ends the process. Events scroll by above the block.
 *
 * Pipe: one aligned line per report, written on the next tick; one line per event at once.
 *
 * Thread: the sink thread.
 */
#include "track/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "track/sink.h"
#include "base/options.h"

typedef struct progress {
    int fd;
    bool bar, quiet, utf8, colour, no_summary;
    char **chosen; /* NULL-terminated, or NULL: the first numbers of the report */
    uni__progress_state state;
    uni__text pending; /* for lines style */
    uni__text lines[UNI__BLOCK_LINES];
    int drawn[UNI__BLOCK_LINES], num_drawn; /* columns of each line on the screen */
    bool changed;
    const char *(*above)(void *context, size_t *size); /* other output, or NULL */
    void *above_context;
    uni_error broken; /* of a tick; the next call that can returns it */
} progress;

static double now_seconds(void)
{
    return (double)uni__monotonic_ns() * 1e-9;
}

/* ---- state ---- */

static void add_sample(uni__progress_state *s, double now)
{
    int newest = (s->next_sample + UNI__RATE_SAMPLES - 1) % UNI__RATE_SAMPLES;
    if (s->num_samples > 1 && now - s->samples[newest].time < 0.25) {
        /* With many reports per second, move the newest sample along, so that the ring spans
         * seconds. */
        int before = (newest + UNI__RATE_SAMPLES - 1) % UNI__RATE_SAMPLES;
        if (now - s->samples[before].time < 0.5) {
            s->samples[newest].time = now;
            s->samples[newest].iteration = s->iteration;
            return;
        }
    }
    s->samples[s->next_sample].time = now;
    s->samples[s->next_sample].iteration = s->iteration;
    s->next_sample = (s->next_sample + 1) % UNI__RATE_SAMPLES;
    if (s->num_samples < UNI__RATE_SAMPLES)
        s->num_samples++;
}

static void forget_samples(uni__progress_state *s)
{
    s->num_samples = s->next_sample = 0;
}

static void show_metric(progress *p, const uni_reports *reports, const char *name)
{
    uni__progress_state *s = &p->state;
    double mean = 0;
    uni_error ignored;
    if (s->num_metrics == UNI__SHOWN_METRICS ||
        uni_reports_aggregate(&mean, reports, name, UNI_AGGREGATE_MEAN, NULL, &ignored) < 0)
        return;
    snprintf(s->names[s->num_metrics], sizeof s->names[0], "%s", name);
    s->values[s->num_metrics++] = mean;
}

static void take_metrics(progress *p, const uni_reports *reports)
{
    const uni_value *first = NULL;
    p->state.num_metrics = 0;
    if (p->chosen != NULL) {
        for (char **name = p->chosen; *name != NULL; name++)
            show_metric(p, reports, *name);
        return;
    }
    for (int rank = 0; rank < reports->world_size && first == NULL; rank++)
        first = reports->by_rank[rank];
    for (size_t i = 0; i < uni_dict_size(first); i++) {
        const uni_value *value = uni_dict_value_at(first, i);
        const char *name = uni_dict_key_at(first, i);
        if (uni_value_is_number(value) && uni_value_type_of(value) != UNI_TYPE_BOOL &&
            !uni__is_autofilled(name))
            show_metric(p, reports, name);
    }
}

static void set_ranks(uni__progress_state *s, uni__progress_rank state)
{
    memset(s->ranks, (int)state, (size_t)s->world_size);
}

static void take_event(uni__progress_state *s, const uni_event *event, double now)
{
    const char *name;
    switch (event->kind) {
    case UNI_EVENT_WORKERS:
        set_ranks(s, UNI__RANK_RUNNING);
        s->attempt_started = now;
        break;
    case UNI_EVENT_FAILURE:
        if (event->rank >= 0 && event->rank < s->world_size)
            s->ranks[event->rank] = UNI__RANK_FAILED;
        break;
    case UNI_EVENT_REPLACED:
    case UNI_EVENT_RESIZED:
        if (event->rank >= 0 && event->rank < s->world_size)
            s->ranks[event->rank] = UNI__RANK_RUNNING;
        break;
    case UNI_EVENT_RESTART:
        s->restarts++;
        set_ranks(s, UNI__RANK_STARTING);
        forget_samples(s);
        break;
    case UNI_EVENT_CHECKPOINT:
        name = strrchr(event->message, '/');
        snprintf(s->checkpoint, sizeof s->checkpoint, "%s",
                 name != NULL ? name + 1 : event->message);
        break;
    case UNI_EVENT_STOPPING:
        s->stopping = true;
        break;
    case UNI_EVENT_WARNING:
        break;
    }
}

/* ---- the terminal ---- */

static void terminal_size(int fd, int *columns, int *rows)
{
    struct winsize size = { 0 };
    if (ioctl(fd, TIOCGWINSZ, &size) < 0 || size.ws_col == 0) {
        size.ws_col = 80;
        size.ws_row = 24;
    }
    *columns = size.ws_col;
    *rows = size.ws_row > 0 ? size.ws_row : 24;
}

/* Moves to the start of the block. A terminal that became narrower has wrapped its lines. */
static void to_start_of_block(progress *p, int columns, int rows, uni__text *out)
{
    int up = 0;
    for (int i = 0; i < p->num_drawn; i++)
        up += p->drawn[i] <= columns ? 1 : (p->drawn[i] + columns - 1) / columns;
    if (up > rows - 1)
        up = rows - 1;
    if (up > 0)
        uni__text_add_format(out, "\r\033[%dA", up);
}

/* above: whole lines to print first, or NULL. */
static int draw(progress *p, const uni__text *above, uni_error *err)
{
    int columns, rows;
    uni__text out = { 0 };
    terminal_size(p->fd, &columns, &rows);
    int lines = rows > UNI__BLOCK_LINES + 1 ? UNI__BLOCK_LINES : 1;
    to_start_of_block(p, columns, rows, &out);
    if (above != NULL && above->size > 0) {
        uni__text_add_string(&out, "\033[J");
        uni__text_add(&out, above->data, above->size);
    }
    uni__progress_render(&p->state, columns, p->utf8, now_seconds(), p->lines, lines);
    p->num_drawn = 0;
    for (int i = 0; i < lines; i++) {
        uni__text *line = &p->lines[i];
        if (line->size == 0)
            continue;
        uni__text_add(&out, line->data, line->size);
        uni__text_add_string(&out, "\033[K\n");
        p->drawn[p->num_drawn++] = uni__text_columns(line->data, line->size);
    }
    uni__text_add_string(&out, "\033[J");
    p->changed = false;
    int status = out.failed ? uni_error_set(err, UNI_ENOMEM, "no memory to draw the progress")
                            : uni__write_all(p->fd, out.data, out.size, "the terminal", err);
    uni__text_free(&out);
    return status;
}

/* ---- lines ---- */

static int flush(progress *p, uni_error *err)
{
    if (p->pending.failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the progress lines");
    if (p->pending.size == 0)
        return 0;
    int status =
        uni__write_all(p->fd, p->pending.data, p->pending.size, "the progress output", err);
    uni__text_clear(&p->pending);
    return status;
}

static void add_report_line(progress *p, const uni_reports *reports)
{
    uni__progress_state *s = &p->state;
    uni__text *out = &p->pending;
    char text[24];
    double rate = uni__progress_rate(s);
    if (s->total > 0)
        uni__text_add_format(out, "[%*lld/%.0f]", snprintf(NULL, 0, "%.0f", s->total),
                             (long long)s->iteration, s->total);
    else
        uni__text_add_format(out, "[%5lld]", (long long)s->iteration);
    for (int i = 0; i < s->num_metrics; i++) {
        uni__format_metric(text, s->values[i]);
        uni__text_add(out, "  ", 2);
        uni__add_clean(out, s->names[i], 24, false);
        uni__text_add_format(out, " %-9s", text);
    }
    if (rate > 0) {
        uni__format_rate(text, rate);
        uni__text_add_format(out, "  %-8s", text);
    }
    if (rate > 0 && s->total > (double)s->iteration) {
        uni__format_duration(text, (s->total - (double)s->iteration) / rate);
        uni__text_add_format(out, "  eta %s", text);
    }
    int missing = 0, which = 0;
    for (int rank = 0; rank < reports->world_size; rank++)
        if (reports->by_rank[rank] == NULL && missing++ == 0)
            which = rank;
    if (s->resizes)
        uni__text_add_format(out, "  %d worker%s", reports->world_size - missing,
                             reports->world_size - missing == 1 ? "" : "s");
    else if (missing == 1)
        uni__text_add_format(out, "  without rank %d", which);
    else if (missing > 1)
        uni__text_add_format(out, "  without %d ranks", missing);
    while (out->size > 0 && out->data[out->size - 1] == ' ')
        out->data[--out->size] = 0;
    uni__text_add(out, "\n", 1);
}

static void add_event_text(progress *p, const uni_event *event, uni__text *out)
{
    static const char *const words[] = {
        [UNI_EVENT_WORKERS] = "",
        [UNI_EVENT_WARNING] = "warning: ",
        [UNI_EVENT_FAILURE] = "failure: ",
        [UNI_EVENT_RESTART] = "restart ",
        [UNI_EVENT_CHECKPOINT] = "saved: ",
        [UNI_EVENT_STOPPING] = "stopping: ",
        [UNI_EVENT_REPLACED] = "replaced: ",
        [UNI_EVENT_RESIZED] = "resized: ",
    };
    bool known = (unsigned)event->kind < sizeof words / sizeof words[0];
    const char *word = known ? words[event->kind] : "", *message = event->message;
    const char *slash = event->kind == UNI_EVENT_CHECKPOINT ? strrchr(message, '/') : NULL;
    if (slash) /* only its name; the run's directory is printed at the end */
        message = slash + 1;
    /* "restart 1 from ..." already contains it. */
    if (event->kind == UNI_EVENT_RESTART && strncmp(message, word, strlen(word)) == 0)
        message += strlen(word);
    const char *colour = event->kind == UNI_EVENT_FAILURE ? "\033[31m"
                         : event->kind == UNI_EVENT_WARNING || event->kind == UNI_EVENT_RESTART ||
                                 event->kind == UNI_EVENT_REPLACED ||
                                 event->kind == UNI_EVENT_RESIZED
                             ? "\033[33m"
                             : "";
    if (p->colour)
        uni__text_add_string(out, colour);
    uni__text_add_string(out, word);
    if (p->colour && colour[0] != 0)
        uni__text_add_string(out, "\033[0m");
    uni__add_clean(out, message, 0, true);
    uni__text_add(out, "\n", 1);
}

/* ---- the sink ---- */

static int progress_start(void *self, const uni_start_info *info, uni_error *err)
{
    progress *p = self;
    uni__progress_state *s = &p->state;
    bool failed = false;
    s->run_id = uni__sink_copy(info->run_id != NULL ? info->run_id : "", &failed);
    s->world_size = info->world_size;
    s->resizes = info->resizes;
    s->ranks = calloc((size_t)info->world_size + 1, 1);
    if (failed || s->ranks == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to show the progress");
    s->total = info->total_iterations;
    s->started = s->attempt_started = now_seconds();
    p->changed = true;
    return 0;
}

static int progress_result(void *self, const uni_reports *reports, uni_error *err)
{
    progress *p = self;
    uni__progress_state *s = &p->state;
    if (p->broken.code < 0)
        return uni_error_set(err, p->broken.code, "%s", p->broken.message);
    double now = now_seconds();
    if (reports->attempt != s->attempt || reports->iteration < s->iteration)
        forget_samples(s);
    s->attempt = reports->attempt;
    s->iteration = reports->iteration;
    s->reports++;
    for (int rank = 0; rank < reports->world_size && rank < s->world_size; rank++)
        s->ranks[rank] = reports->by_rank[rank] != NULL ? UNI__RANK_RUNNING : UNI__RANK_BEHIND;
    add_sample(s, now);
    p->changed = true;
    if (p->quiet && !p->bar)
        return 0;
    take_metrics(p, reports);
    if (p->bar)
        return 0; /* drawn on the next tick */
    add_report_line(p, reports);
    return p->pending.size > 16 * 1024 ? flush(p, err) : 0;
}

static int progress_event(void *self, const uni_event *event, uni_error *err)
{
    progress *p = self;
    take_event(&p->state, event, now_seconds());
    if (!p->bar) {
        add_event_text(p, event, &p->pending);
        return flush(p, err);
    }
    /* In the block; one line per step would scroll everything else away. */
    if (event->kind == UNI_EVENT_CHECKPOINT)
        return draw(p, NULL, err);
    uni__text above = { 0 };
    add_event_text(p, event, &above);
    int status = draw(p, &above, err);
    uni__text_free(&above);
    return status;
}

/* Draws the block, with other output for this terminal above it. */
static int draw_with_others(progress *p, uni_error *err)
{
    uni__text others = { 0 };
    size_t size = 0;
    const char *text = p->above != NULL ? p->above(p->above_context, &size) : NULL;
    if (text != NULL && size > 0)
        uni__text_add(&others, text, size);
    int status = draw(p, &others, err);
    uni__text_free(&others);
    return status;
}

static void progress_tick(void *self)
{
    progress *p = self;
    uni_error err = { 0 };
    if (p->broken.code == 0 && (p->bar ? draw_with_others(p, &err) : flush(p, &err)) < 0)
        p->broken = err;
}

static int progress_finish(void *self, const uni_finish_info *info, uni_error *err)
{
    progress *p = self;
    uni__progress_state *s = &p->state;
    char time[24];
    uni__text text = { 0 };
    s->finished = true;
    s->code = info->code;
    s->seconds = info->seconds;
    uni__format_duration(time, info->seconds);
    if (p->no_summary) {
        /* Only the last state of the block. */
    } else if (info->code < 0) {
        uni__text_add_format(&text, "%sfailed%s after %s: ", p->colour ? "\033[31m" : "",
                             p->colour ? "\033[0m" : "", time);
        uni__add_clean(&text, info->message != NULL ? info->message : "", 0, true);
        uni__text_add(&text, "\n", 1);
    } else if (!p->bar) {
        uni__text_add_format(&text, "finished: %lld iterations in %s", (long long)s->iteration,
                             time);
        if (s->restarts > 0)
            uni__text_add_format(&text, ", %d restart%s", s->restarts, s->restarts == 1 ? "" : "s");
        uni__text_add(&text, "\n", 1);
    }
    int status = 0;
    if (p->bar) {
        status = draw_with_others(p, err);
        if (status == 0)
            status = draw(p, &text, err);
        p->num_drawn = 0; /* it stays on the screen */
    } else {
        uni__text_add(&p->pending, text.data, text.size);
        status = flush(p, err);
    }
    uni__text_free(&text);
    return status;
}

static void progress_free(void *self)
{
    progress *p = self;
    for (char **name = p->chosen; name != NULL && *name != NULL; name++)
        free(*name);
    for (int i = 0; i < UNI__BLOCK_LINES; i++)
        uni__text_free(&p->lines[i]);
    uni__text_free(&p->pending);
    free(p->chosen);
    free(p->state.run_id);
    free(p->state.ranks);
    free(p);
}

static const uni_sink_class progress_class = {
    .name = "progress",
    .start = progress_start,
    .result = progress_result,
    .event = progress_event,
    .tick = progress_tick,
    .finish = progress_finish,
    .free = progress_free,
};

/* The first of LC_ALL, LC_CTYPE and LANG that is set decides, as in setlocale. */
static bool locale_is_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (size_t i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != 0)
            return strcasestr(value, "utf-8") != NULL || strcasestr(value, "utf8") != NULL;
    }
    return false;
}

static bool copy_names(progress *p, const char *const *names)
{
    size_t count = 0;
    bool failed = false;
    while (names[count] != NULL)
        count++;
    p->chosen = calloc(count + 1, sizeof *p->chosen);
    for (size_t i = 0; p->chosen != NULL && i < count && !failed; i++)
        p->chosen[i] = uni__sink_copy(names[i], &failed);
    return p->chosen != NULL && !failed;
}

int uni_sink_progress(uni_sink **out, const uni_sink_progress_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_sink_progress_options, options, no_summary, err);
    if (options->style < 0 || options->style > 2)
        return uni_error_set(err, UNI_EINVAL, "progress style %d: 0 is automatic, 1 a bar, 2 lines",
                             options->style);
    progress *p = calloc(1, sizeof *p);
    if (p == NULL || (options->metrics != NULL && !copy_names(p, options->metrics))) {
        if (p != NULL)
            progress_free(p);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the progress sink");
    }
    const char *term = getenv("TERM");
    const char *no_colour = getenv("NO_COLOR");
    p->fd = options->fd == 0 ? STDERR_FILENO : options->fd;
    bool terminal = isatty(p->fd) == 1 && term != NULL && strcmp(term, "dumb") != 0;
    p->bar = options->style == 1 || (options->style == 0 && terminal);
    p->quiet = options->quiet_lines;
    p->above = options->above;
    p->above_context = options->above_context;
    p->no_summary = options->no_summary;
    p->utf8 = locale_is_utf8();
    p->colour = terminal && (no_colour == NULL || no_colour[0] == 0);
    int status = uni_sink_new(out, &progress_class, p, err);
    if (status < 0)
        progress_free(p);
    return status;
}
