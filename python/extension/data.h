/*
 * data.h - datasets as Python objects: shared by data_table.c, data_dataset.c, data_read.c,
 * data_map.c and data_iterate.c. For these only.
 *
 * Table, Dataset and DataIterator wrap the library's objects; unisono.data is built on them in
 * Python. Numbers are never copied between the two sides: arrays go out through the buffer protocol
 * and come in as views of Python's buffers.
 */
#ifndef UNISONO_PYTHON_DATA_H
#define UNISONO_PYTHON_DATA_H

#include <unisono/data.h>
#include <unisono/data_readers.h>

#include "door.h"

typedef struct table_object {
    PyObject_HEAD uni_table *table;
} table_object;

typedef struct dataset_object {
    PyObject_HEAD uni_dataset *dataset;
} dataset_object;

/* All take over a reference (NULL means that the caller failed). */
PyObject *door_table_take(door_state *state, uni_table *table);
/* Handles Ctrl-C while waiting for a dataset: returns nonzero with the exception set. User
 * functions that are running are interrupted, too. */
int door_check_interrupt(void);
PyObject *door_dataset_take(door_state *state, uni_dataset *dataset);
uni_table *door_table_of(door_state *state, PyObject *object); /* borrowed; NULL with a TypeError */
/* The tables of a list, which the caller must keep meanwhile; PyMem_Free. */
uni_table **door_tables_of(door_state *state, PyObject *list, int *count);

/* A NULL-terminated array of the strings of a list or tuple, borrowed from them (None: NULL and no
 * error); PyMem_Free. */
int door_names(PyObject *list, const char ***out, Py_ssize_t *count);

/* data_dlpack.c: Table.dlpack(names, unsqueeze). */
PyObject *door_table_dlpack(PyObject *object, PyObject *arguments);
/* data_read.c: Dataset.read(kind, paths, options). */
PyObject *door_dataset_read(PyObject *class_, PyObject *arguments);
/* data_map.c: a Python function as a stage, and Python rows as a source. */
PyObject *door_dataset_map(PyObject *self, PyObject *arguments);
PyObject *door_dataset_from_python(PyObject *class_, PyObject *arguments);
/* data_iterate.c */
PyObject *door_dataset_iterate(PyObject *self, PyObject *arguments);
PyObject *door_merge_states(PyObject *class_, PyObject *states);

int door_table_init(PyObject *module, door_state *state);
int door_dataset_init(PyObject *module, door_state *state);
int door_data_iterator_init(PyObject *module, door_state *state);
int door_preprocessor_init(PyObject *module); /* data_preprocess.c */

#endif
