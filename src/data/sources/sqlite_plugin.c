/*
 * sqlite_plugin.c - libunisono-sqlite.so: SQLite for src/data (sqlite_plugin.h).
 */
#include <ctype.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/sources/sqlite_plugin.h"

/* Limits for hostile files. A value is never larger than this: a view with zeroblob(1000000000)
 * takes only a few bytes. A step that gives no row ends after this many instructions of SQLite's
 * virtual machine, which is minutes. */
#define MAX_VALUE (64 << 20)
#define MAX_INSTRUCTIONS ((uint64_t)1 << 34)
#define ASK_EVERY 100000 /* instructions */

struct connection {
    sqlite3 *database;
    uint64_t instructions; /* since the last row */
    bool may_recurse; /* the query itself has a WITH */
    bool recursion; /* a view was rejected for one */
    bool (*stop)(const void *context);
    const void *context;
};

struct statement {
    sqlite3_stmt *own;
    struct connection *connection;
};

static void say(const struct connection *connection, char *why)
{
    if (connection->recursion)
        snprintf(why, UNI__SQLITE_WHY_SIZE,
                 "a view of the file is recursive, and may be endless: write its query yourself "
                 "(WITH RECURSIVE ...) if you trust it");
    else if (connection->instructions > MAX_INSTRUCTIONS)
        snprintf(why, UNI__SQLITE_WHY_SIZE,
                 "the query gave no row for %llu million instructions of SQLite's; is it endless?",
                 (unsigned long long)(MAX_INSTRUCTIONS / 1000000));
    else
        snprintf(why, UNI__SQLITE_WHY_SIZE, "%s", sqlite3_errmsg(connection->database));
}

static int progress(void *context)
{
    struct connection *connection = context;
    connection->instructions += ASK_EVERY;
    return connection->instructions > MAX_INSTRUCTIONS ||
           (connection->stop != NULL && connection->stop(connection->context));
}

/* Rejects views that recurse, so that a file's views cannot run forever. */
static int authorize(void *context, int action, const char *a, const char *b, const char *c,
                     const char *d)
{
    struct connection *connection = context;
    if (action != SQLITE_RECURSIVE || connection->may_recurse)
        return SQLITE_OK;
    connection->recursion = true;
    return SQLITE_DENY;
}

static void db_close(void *connection_)
{
    struct connection *connection = connection_;
    sqlite3_close(connection->database);
    free(connection);
}

static void *db_open(const char *path, char *why)
{
    struct connection *made = calloc(1, sizeof *made);
    if (made == NULL) {
        snprintf(why, UNI__SQLITE_WHY_SIZE, "out of memory");
        return NULL;
    }
    if (sqlite3_open_v2(path, &made->database, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK) {
        if (made->database != NULL)
            say(made, why);
        else
            snprintf(why, UNI__SQLITE_WHY_SIZE, "out of memory");
        db_close(made);
        return NULL;
    }
    sqlite3_busy_timeout(made->database, 5000);
    /* The views of a hostile file must not call application functions. */
    sqlite3_db_config(made->database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_limit(made->database, SQLITE_LIMIT_LENGTH, MAX_VALUE);
    sqlite3_set_authorizer(made->database, authorize, made);
    sqlite3_progress_handler(made->database, ASK_EVERY, progress, made);
    return made;
}

static void db_finish(void *statement_)
{
    struct statement *statement = statement_;
    sqlite3_finalize(statement->own);
    free(statement);
}

/* Finds the word, not a part of a name. */
static bool has_with(const char *sql)
{
    const char *at = sql;
    for (; (at = strcasestr(at, "with")) != NULL; at++) {
        unsigned char before = at > sql ? (unsigned char)at[-1] : ' ', after = (unsigned char)at[4];
        if ((isspace(before) || before == '(') && isspace(after))
            return true;
    }
    return false;
}

static void *db_prepare(void *connection_, const char *sql, int64_t first, int64_t last, char *why)
{
    struct connection *connection = connection_;
    struct statement *made = calloc(1, sizeof *made);
    if (made == NULL) {
        snprintf(why, UNI__SQLITE_WHY_SIZE, "out of memory");
        return NULL;
    }
    made->connection = connection;
    connection->instructions = 0;
    connection->may_recurse = has_with(sql);
    if (sqlite3_prepare_v2(connection->database, sql, -1, &made->own, NULL) != SQLITE_OK ||
        made->own == NULL) {
        say(connection, why);
        db_finish(made);
        return NULL;
    }
    if (!sqlite3_stmt_readonly(made->own)) {
        snprintf(why, UNI__SQLITE_WHY_SIZE, "only queries that read are allowed");
        db_finish(made);
        return NULL;
    }
    if (sqlite3_bind_parameter_count(made->own) == 2) {
        sqlite3_bind_int64(made->own, 1, first);
        sqlite3_bind_int64(made->own, 2, last);
    }
    return made;
}

static void db_watch(void *statement, bool (*stop)(const void *context), const void *context)
{
    struct connection *connection = ((struct statement *)statement)->connection;
    connection->stop = stop;
    connection->context = context;
}

static int db_step(void *statement_, char *why)
{
    struct statement *statement = statement_;
    statement->connection->instructions = 0;
    int result = sqlite3_step(statement->own);
    if (result == SQLITE_ROW || result == SQLITE_DONE)
        return result == SQLITE_ROW;
    say(statement->connection, why);
    return -1;
}

static sqlite3_stmt *own(void *statement)
{
    return ((struct statement *)statement)->own;
}

static int db_columns(void *statement)
{
    return sqlite3_column_count(own(statement));
}

static const char *db_column_name(void *statement, int column)
{
    return sqlite3_column_name(own(statement), column);
}

static const char *db_column_type(void *statement, int column)
{
    return sqlite3_column_decltype(own(statement), column);
}

static void db_cell(void *statement, int column, uni__sqlite_cell *cell)
{
    switch (sqlite3_column_type(own(statement), column)) {
    case SQLITE_INTEGER:
        cell->type = UNI__SQLITE_INT;
        cell->integer = sqlite3_column_int64(own(statement), column);
        cell->real = (double)cell->integer;
        break;
    case SQLITE_FLOAT:
        cell->type = UNI__SQLITE_FLOAT;
        cell->real = sqlite3_column_double(own(statement), column);
        break;
    case SQLITE_TEXT:
        cell->type = UNI__SQLITE_TEXT;
        cell->data = sqlite3_column_text(own(statement), column);
        cell->size = (size_t)sqlite3_column_bytes(own(statement), column);
        break;
    case SQLITE_BLOB:
        cell->type = UNI__SQLITE_BLOB;
        cell->data = sqlite3_column_blob(own(statement), column);
        cell->size = (size_t)sqlite3_column_bytes(own(statement), column);
        break;
    default:
        cell->type = UNI__SQLITE_NULL;
        break;
    }
}

const uni__sqlite_plugin *uni__sqlite_plugin_get(void);
__attribute__((visibility("default"))) const uni__sqlite_plugin *uni__sqlite_plugin_get(void)
{
    static const uni__sqlite_plugin plugin = { .version = UNI__SQLITE_PLUGIN_VERSION,
                                               .name = "SQLite " SQLITE_VERSION,
                                               .open = db_open,
                                               .close = db_close,
                                               .prepare = db_prepare,
                                               .finish = db_finish,
                                               .watch = db_watch,
                                               .step = db_step,
                                               .columns = db_columns,
                                               .column_name = db_column_name,
                                               .column_type = db_column_type,
                                               .cell = db_cell };
    return &plugin;
}
