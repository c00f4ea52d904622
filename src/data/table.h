/* table.h - what the files of src/data share about tables. Any thread. */
#ifndef UNISONO_DATA_TABLE_H
#define UNISONO_DATA_TABLE_H

#include <unisono/table.h>

struct uni__reader;

/* Bytes of a row of a NUMBER column; of an element otherwise. */
size_t uni__field_row_bytes(const uni_field *field);
bool uni__field_same_type(const uni_field *a, const uni_field *b); /* all but the name */
/* Tables with the same fields; otherwise an error that begins with `what`. */
int uni__table_same_fields(const uni_table *a, const uni_table *b, const char *what,
                           uni_error *err) UNI_MUST_USE;
/* UNI_ENOTFOUND with the names that there are. */
int uni__no_such_column(const uni_table *table, const char *name, uni_error *err);

/* Row `row` of table number `table`: what a gather over several tables takes. */
typedef struct uni__row {
    int32_t table;
    int32_t row;
} uni__row;

/* The rows in this order from several tables, whose fields are the same (the caller has seen to it), in recycled memory (reader may be NULL: fresh memory). */
int uni__table_gather(uni_table **out, struct uni__reader *reader, uni_table *const *tables,
                      int num_tables, const uni__row *rows, int64_t count,
                      uni_error *err) UNI_MUST_USE;
/* uni_table_concat in recycled memory. */
int uni__table_concat(uni_table **out, struct uni__reader *reader, uni_table *const *tables,
                      int count, uni_error *err) UNI_MUST_USE;
/* The same table, the numbers of which begin at multiples of UNI__ALIGNMENT bytes: columns that do not are copied. */
#define UNI__ALIGNMENT 64
int uni__table_align(uni_table **out, struct uni__reader *reader, uni_table *table,
                     uni_error *err) UNI_MUST_USE;
/* A table of no rows with the same columns. */
int uni__table_empty(uni_table **out, const uni_table *like, uni_error *err) UNI_MUST_USE;
/* A table of no rows and one column more; for making schemas. */
int uni__table_add_field(uni_table *schema, const uni_field *field, uni_error *err) UNI_MUST_USE;

#endif
