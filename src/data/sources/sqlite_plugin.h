/*
 * sqlite_plugin.h - the interface between libunisono and libunisono-sqlite.so: statements and their
 * values. Only the plug-in links SQLite; it uses no symbol of libunisono. For this folder only.
 */
#ifndef UNISONO_DATA_SQLITE_PLUGIN_H
#define UNISONO_DATA_SQLITE_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNI__SQLITE_PLUGIN_VERSION 2
#define UNI__SQLITE_PLUGIN_SYMBOL "uni__sqlite_plugin_get"
#define UNI__SQLITE_WHY_SIZE 300

enum uni__sqlite_type {
    UNI__SQLITE_NULL,
    UNI__SQLITE_INT,
    UNI__SQLITE_FLOAT,
    UNI__SQLITE_TEXT,
    UNI__SQLITE_BLOB
};

typedef struct uni__sqlite_cell {
    enum uni__sqlite_type type;
    int64_t integer;
    double real;
    const void *data; /* text and blobs; valid until the next step */
    size_t size;
} uni__sqlite_cell;

typedef struct uni__sqlite_plugin {
    int version;
    const char *name; /* "SQLite 3.40.1" */
    /* Opens read-only; NULL with a reason. A connection belongs to one thread. */
    void *(*open)(const char *path, char *why);
    void (*close)(void *database);
    /* NULL with a reason. Binds `first` and `last` to ?1 and ?2 if the statement has them. */
    void *(*prepare)(void *database, const char *sql, int64_t first, int64_t last, char *why);
    void (*finish)(void *statement);
    /* Polls stop(context) while a step runs; true ends it. */
    void (*watch)(void *statement, bool (*stop)(const void *context), const void *context);
    int (*step)(void *statement, char *why); /* 1: a row, 0: the end, -1: error with a reason */
    int (*columns)(void *statement);
    const char *(*column_name)(void *statement, int column);
    const char *(*column_type)(void *statement, int column); /* as declared, or NULL */
    void (*cell)(void *statement, int column, uni__sqlite_cell *cell);
} uni__sqlite_plugin;

#endif
