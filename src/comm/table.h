/* table.h - the table of algorithms as text, for `unisono check --collectives`. Any thread. */
#ifndef UNISONO_COMM_TABLE_H
#define UNISONO_COMM_TABLE_H

#include "base/text.h"

/* One row per collective, size and number of ranks: the algorithm and its cost. */
void uni__table_print(uni__text *text);

#endif
