/*
 * progress_bar.c - the block of lines that shows a run: pure functions from what is known to text.
 *
 *     digits/run_001  [=========>          ]  37/100  12.3/s  ETA 0:05
 *     loss 0.1234  accuracy 0.987
 *     ranks 0-3 running, 1 restart, checkpoint_000003
 *
 * A line is always narrower than the terminal, so that it never wraps and the block can be redrawn
 * in place. What does not fit is left out in this order: the run's name, the rate, the bar; metrics
 * and states from the right. Thread: any.
 */
#include "track/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/safe_text.h"

/* ---- numbers ---- */

double uni__progress_rate(const uni__progress_state *state)
{
    if (state->num_samples < 2)
        return 0;
    int newest = (state->next_sample + UNI__RATE_SAMPLES - 1) % UNI__RATE_SAMPLES;
    int oldest = state->num_samples < UNI__RATE_SAMPLES ? 0 : state->next_sample;
    double time = state->samples[newest].time - state->samples[oldest].time;
    double steps = (double)(state->samples[newest].iteration - state->samples[oldest].iteration);
    return time > 0 && steps > 0 ? steps / time : 0;
}

void uni__format_duration(char *out, double seconds)
{
    if (!(seconds >= 0))
        seconds = 0;
    if (seconds >= 360000) {
        snprintf(out, 24, "%.0f days", fmin(seconds / 86400, 1e6));
        return;
    }
    int whole = (int)(seconds + 0.5);
    if (whole >= 3600)
        snprintf(out, 24, "%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(out, 24, "%d:%02d", whole / 60, whole % 60);
}

void uni__format_metric(char *out, double value)
{
    if (isnan(value))
        strcpy(out, "nan");
    else if (isinf(value))
        strcpy(out, value < 0 ? "-inf" : "inf");
    else if (value == floor(value) && fabs(value) < 1e9)
        snprintf(out, 24, "%.0f", value);
    else
        snprintf(out, 24, "%.4g", value);
}

void uni__format_rate(char *out, double rate)
{
    if (rate >= 1000)
        snprintf(out, 24, "%.4gk/s", rate / 1000);
    else if (rate >= 1 || rate <= 0)
        snprintf(out, 24, "%.3g/s", rate);
    else
        snprintf(out, 24, "%.3g s each", 1 / rate);
}

/* ---- columns ---- */

/* Reads one code point; bytes that are not UTF-8 each give U+FFFD. */
static size_t next_code(const char *text, size_t size, uint32_t *code)
{
    unsigned char first = (unsigned char)text[0];
    size_t length = first < 0x80 ? 1 : first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : 2;
    uint32_t value = length == 1 ? first : first & (0x7fu >> length);
    *code = 0xfffd;
    if (first >= 0x80 && (first < 0xc2 || first >= 0xf5 || length > size))
        return 1;
    for (size_t i = 1; i < length; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 1;
        value = value << 6 | ((unsigned char)text[i] & 0x3f);
    }
    *code = value;
    return length;
}

static int code_columns(uint32_t code)
{
    if ((code >= 0x300 && code < 0x370) || (code >= 0x200b && code <= 0x200f) ||
        (code >= 0xfe00 && code <= 0xfe0f))
        return 0;
    if ((code >= 0x1100 && code < 0x1160) || (code >= 0x2e80 && code < 0xa4d0) ||
        (code >= 0xac00 && code < 0xd7a4) || (code >= 0xf900 && code < 0xfb00) ||
        (code >= 0xfe30 && code < 0xfe70) || (code >= 0xff00 && code < 0xff61) ||
        (code >= 0x1f300 && code < 0x1fb00) || (code >= 0x20000 && code < 0x40000))
        return 2;
    return 1;
}

int uni__text_columns(const char *text, size_t size)
{
    int columns = 0;
    uint32_t code;
    for (size_t at = 0; at < size;) {
        at += next_code(text + at, size - at, &code);
        columns += code_columns(code);
    }
    return columns;
}

void uni__add_clean(uni__text *out, const char *text, int max_columns, bool lines)
{
    size_t size = strlen(text);
    int columns = 0;
    for (size_t at = 0; at < size;) {
        char escape[UNI__ESCAPE_SIZE];
        size_t length = uni__safe_step(text + at, size - at, lines ? "\n" : "", escape);
        const char *shown = escape[0] ? escape : text + at;
        size_t bytes = escape[0] ? strlen(escape) : length;
        columns += uni__text_columns(shown, bytes);
        if (max_columns > 0 && columns > max_columns)
            return;
        uni__text_add(out, shown, bytes);
        at += length;
    }
}

/* Appends ", part" or "  part" if it still fits. */
static void add_part(uni__text *line, const char *separator, const char *part, int room)
{
    int gap = line->size > 0 ? (int)strlen(separator) : 0;
    int used = uni__text_columns(line->size > 0 ? line->data : "", line->size);
    if (used + gap + uni__text_columns(part, strlen(part)) > room) {
        if (line->size == 0)
            uni__add_clean(line, part, room, false);
        return;
    }
    if (gap > 0)
        uni__text_add_string(line, separator);
    uni__text_add_string(line, part);
}

/* ---- the lines ---- */

static void add_bar(uni__text *line, int width, double share, bool utf8)
{
    int filled = (int)(share * width + 0.5);
    uni__text_add(line, "[", 1);
    for (int i = 0; i < width; i++) {
        if (utf8)
            uni__text_add_string(line, i < filled ? "█" : "░");
        else
            uni__text_add_string(line, i < filled ? "=" : i == filled ? ">" : " ");
    }
    uni__text_add(line, "]", 1);
}

static void render_bar(const uni__progress_state *s, int room, bool utf8, double now,
                       uni__text *line)
{
    char count[80], rate[24], time[24], rest[64] = "", speed[32] = "";
    double per_second = uni__progress_rate(s);
    double share = s->total > 0 ? fmin((double)s->iteration / s->total, 1) : 0;
    if (s->total > 0)
        snprintf(count, sizeof count, "%lld/%.0f", (long long)s->iteration, s->total);
    else
        snprintf(count, sizeof count, "iteration %lld", (long long)s->iteration);
    if (s->finished) {
        uni__format_duration(time, s->seconds);
        snprintf(rest, sizeof rest, "%s", time);
    } else if (s->total > 0 && per_second > 0) {
        uni__format_duration(time, fmax(s->total - (double)s->iteration, 0) / per_second);
        snprintf(rest, sizeof rest, "ETA %s", time);
    } else {
        uni__format_duration(time, now - s->started);
        snprintf(rest, sizeof rest, "%s", time);
    }
    if (per_second > 0 && !s->finished) {
        uni__format_rate(rate, per_second);
        snprintf(speed, sizeof speed, "%s", rate);
    }
    int right = (int)strlen(count) + 2 + (int)strlen(rest);
    int with_speed = speed[0] != 0 ? (int)strlen(speed) + 2 : 0;
    int name = uni__text_columns(s->run_id, strlen(s->run_id)) + 2;
    if (name > room / 2 || room - right - with_speed - name - 4 < 10)
        name = 0;
    if (room - right - with_speed - name - 4 < 5)
        with_speed = 0;
    int width = room - right - with_speed - name - 4;
    if (name > 0) {
        uni__add_clean(line, s->run_id, 0, false);
        uni__text_add(line, "  ", 2);
    }
    if (s->total > 0 && width >= 5) {
        add_bar(line, width < 40 ? width : 40, share, utf8);
        uni__text_add(line, "  ", 2);
    }
    uni__add_clean(line, count, room, false);
    if (with_speed > 0)
        add_part(line, "  ", speed, room);
    add_part(line, "  ", rest, room);
}

static void render_metrics(const uni__progress_state *s, int room, uni__text *line)
{
    for (int i = 0; i < s->num_metrics; i++) {
        char number[24];
        uni__text part = { 0 };
        uni__format_metric(number, s->values[i]);
        uni__add_clean(&part, s->names[i], 24, false);
        uni__text_add(&part, " ", 1);
        uni__text_add_string(&part, number);
        if (!part.failed)
            add_part(line, "  ", part.data, room);
        uni__text_free(&part);
    }
}

/* "0-3,7": the ranks in that state; returns their number. */
static int list_ranks(const uni__progress_state *s, uni__progress_rank state, uni__text *out)
{
    int count = 0;
    for (int rank = 0; rank < s->world_size; rank++) {
        if (s->ranks[rank] != state)
            continue;
        int last = rank;
        while (last + 1 < s->world_size && s->ranks[last + 1] == state)
            last++;
        if (count > 0)
            uni__text_add(out, ",", 1);
        uni__text_add_int(out, rank);
        if (last > rank) {
            uni__text_add(out, "-", 1);
            uni__text_add_int(out, last);
        }
        count += last - rank + 1;
        rank = last;
    }
    return count;
}

static void render_states(const uni__progress_state *s, int room, uni__text *line)
{
    /* Problems come first, because they must not be cut off. */
    static const uni__progress_rank order[] = { UNI__RANK_FAILED, UNI__RANK_BEHIND,
                                                UNI__RANK_STARTING, UNI__RANK_RUNNING };
    static const char *const words[] = { "starting", "running", "behind", "failed" };
    char part[64];
    if (s->finished)
        add_part(line, ", ",
                 s->code == 0                ? "finished"
                 : s->code == UNI_EPREEMPTED ? "stopped"
                                             : "failed",
                 room);
    else if (s->stopping)
        add_part(line, ", ", "stopping", room);
    for (size_t i = 0; i < 4 && !s->finished; i++) {
        uni__text ranks = { 0 };
        int count = list_ranks(s, order[i], &ranks);
        if (count > 0 && !ranks.failed) {
            if (ranks.size > 24)
                snprintf(part, sizeof part, "%d ranks %s", count, words[order[i]]);
            else
                snprintf(part, sizeof part, "%s %s %s", count == 1 ? "rank" : "ranks", ranks.data,
                         words[order[i]]);
            add_part(line, ", ", part, room);
        }
        uni__text_free(&ranks);
    }
    if (s->restarts > 0) {
        snprintf(part, sizeof part, "%d restart%s", s->restarts, s->restarts == 1 ? "" : "s");
        add_part(line, ", ", part, room);
    }
    if (s->checkpoint[0] != 0) {
        uni__text name = { 0 };
        uni__add_clean(&name, s->checkpoint, 40, false);
        if (!name.failed && name.size > 0)
            add_part(line, ", ", name.data, room);
        uni__text_free(&name);
    }
}

void uni__progress_render(const uni__progress_state *state, int columns, bool utf8, double now,
                          uni__text *lines, int num_lines)
{
    int room = columns > 2 ? columns - 1 : 1;
    for (int i = 0; i < num_lines; i++)
        uni__text_clear(&lines[i]);
    if (num_lines > 0)
        render_bar(state, room, utf8, now, &lines[0]);
    if (num_lines > 1)
        render_metrics(state, room, &lines[1]);
    if (num_lines > 2)
        render_states(state, room, &lines[2]);
}
