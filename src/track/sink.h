/* sink.h - internals of a uni_sink, for the runner, and helpers that the sinks share. For this
 * module only. */
#ifndef UNISONO_TRACK_SINK_H
#define UNISONO_TRACK_SINK_H

#include <unisono/track.h>

#include "base/text.h"

struct uni_sink {
    const uni_sink_class *class_;
    void *self;
};

/* "DIR/FILE"; dir NULL is the run directory. Creates the directory if necessary. malloc'ed. */
int uni__sink_path(char **out, const char *dir, const char *filename, const char *run_dir,
                   uni_error *err) UNI_MUST_USE;
/* A copy of the caller's string, or NULL for NULL; sets *failed if out of memory. */
char *uni__sink_copy(const char *text, bool *failed);

/* Writes a value as JSON, with non-finite numbers as in Python's json. indent 0: one line,
 * otherwise spaces per level. */
void uni__emit_json(uni__text *out, const uni_value *value, int indent);

/* Calls visit for every leaf below dict with its joined name ("a.b" with separator '.'); lists and
 * arrays are leaves. */
typedef int (*uni__flat_visit)(void *context, const char *name, const uni_value *leaf,
                               uni_error *err);
int uni__flatten(const uni_value *dict, char separator, uni__text *scratch, uni__flat_visit visit,
                 void *context, uni_error *err) UNI_MUST_USE;
/* "_timestamp" and the like, which the session fills in, not the user. */
bool uni__is_autofilled(const char *name);
/* The rank's dictionary; NULL if it did not report or does not exist. */
const uni_value *uni__reports_rank(const uni_reports *reports, int rank);

#endif
