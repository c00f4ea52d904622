/* table.h - table functions shared within src/data. Any thread. */
#ifndef UNISONO_DATA_TABLE_H
#define UNISONO_DATA_TABLE_H

#include <unisono/table.h>

struct uni__reader;

/* Bytes per row of a NUMBER column; per element otherwise. */
size_t uni__field_row_bytes(const uni_field *field);
bool uni__field_same_type(const uni_field *a, const uni_field *b); /* ignores the name */
/* Checks that both tables have the same fields; otherwise the error begins with `what`. */
int uni__table_same_fields(const uni_table *a, const uni_table *b, const char *what,
                           uni_error *err) UNI_MUST_USE;
/* Returns UNI_ENOTFOUND and lists the existing names. */
int uni__no_such_column(const uni_table *table, const char *name, uni_error *err);

/* Row `row` of table number `table`, for gathers over several tables. */
typedef struct uni__row {
    int32_t table;
    int32_t row;
} uni__row;

/* Gathers rows in this order from several tables into recycled memory; without a reader, into fresh
 * memory. The caller ensures that the fields are the same. */
int uni__table_gather(uni_table **out, struct uni__reader *reader, uni_table *const *tables,
                      int num_tables, const uni__row *rows, int64_t count,
                      uni_error *err) UNI_MUST_USE;
/* uni__table_append into recycled memory. */
int uni__table_concat(uni_table **out, struct uni__reader *reader, uni_table *const *tables,
                      int count, uni_error *err) UNI_MUST_USE;
/* Concatenates `parts` if `status` is 0, otherwise returns it. Frees the parts and their list. */
int uni__table_join(uni_table **out, struct uni__reader *reader, uni_table **parts, int count,
                    int status, uni_error *err) UNI_MUST_USE;
/* The same table with numbers aligned to UNI__ALIGNMENT bytes. Unaligned columns are copied. */
#define UNI__ALIGNMENT 64
int uni__table_align(uni_table **out, struct uni__reader *reader, uni_table *table,
                     uni_error *err) UNI_MUST_USE;
/* An empty table with the same columns. */
int uni__table_empty(uni_table **out, const uni_table *like, uni_error *err) UNI_MUST_USE;
/* Adds a column to an empty table; for building schemas. */
int uni__table_add_field(uni_table *schema, const uni_field *field, uni_error *err) UNI_MUST_USE;

#endif
