/*
 * sqlite_plugin.c - libunisono-sqlite.so: SQLite for src/data (sqlite_plugin.h).
 */
#include <sqlite3.h>
#include <stdio.h>

#include "data/sources/sqlite_plugin.h"

static void say(sqlite3 *database, char *why)
{
    snprintf(why, UNI__SQLITE_WHY_SIZE, "%s",
             database != NULL ? sqlite3_errmsg(database) : "out of memory");
}

static void *db_open(const char *path, char *why)
{
    sqlite3 *database = NULL;
    if (sqlite3_open_v2(path, &database, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK) {
        say(database, why);
        sqlite3_close(database);
        return NULL;
    }
    sqlite3_busy_timeout(database, 5000);
    /* A hostile file must not run functions of ours from its views. */
    sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    return database;
}

static void db_close(void *database)
{
    sqlite3_close(database);
}

static void *db_prepare(void *database, const char *sql, int64_t first, int64_t last, char *why)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(database, sql, -1, &statement, NULL) != SQLITE_OK || statement == NULL) {
        say(database, why);
        return NULL;
    }
    if (!sqlite3_stmt_readonly(statement)) {
        snprintf(why, UNI__SQLITE_WHY_SIZE, "only queries that read are allowed");
        sqlite3_finalize(statement);
        return NULL;
    }
    if (sqlite3_bind_parameter_count(statement) == 2) {
        sqlite3_bind_int64(statement, 1, first);
        sqlite3_bind_int64(statement, 2, last);
    }
    return statement;
}

static void db_finish(void *statement)
{
    sqlite3_finalize(statement);
}

static int db_step(void *statement, char *why)
{
    int result = sqlite3_step(statement);
    if (result == SQLITE_ROW || result == SQLITE_DONE)
        return result == SQLITE_ROW;
    say(sqlite3_db_handle(statement), why);
    return -1;
}

static int db_columns(void *statement)
{
    return sqlite3_column_count(statement);
}

static const char *db_column_name(void *statement, int column)
{
    return sqlite3_column_name(statement, column);
}

static const char *db_column_type(void *statement, int column)
{
    return sqlite3_column_decltype(statement, column);
}

static void db_cell(void *statement, int column, uni__sqlite_cell *cell)
{
    switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
        cell->type = UNI__SQLITE_INT;
        cell->integer = sqlite3_column_int64(statement, column);
        cell->real = (double)cell->integer;
        break;
    case SQLITE_FLOAT:
        cell->type = UNI__SQLITE_FLOAT;
        cell->real = sqlite3_column_double(statement, column);
        break;
    case SQLITE_TEXT:
        cell->type = UNI__SQLITE_TEXT;
        cell->data = sqlite3_column_text(statement, column);
        cell->size = (size_t)sqlite3_column_bytes(statement, column);
        break;
    case SQLITE_BLOB:
        cell->type = UNI__SQLITE_BLOB;
        cell->data = sqlite3_column_blob(statement, column);
        cell->size = (size_t)sqlite3_column_bytes(statement, column);
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
                                               .step = db_step,
                                               .columns = db_columns,
                                               .column_name = db_column_name,
                                               .column_type = db_column_type,
                                               .cell = db_cell };
    return &plugin;
}
