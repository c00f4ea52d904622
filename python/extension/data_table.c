/*
 * data_table.c - unisono._unisono.Table: raw columns, which Python code wraps. Numbers go out and
 * come in without a copy; text becomes a list of str or bytes in one call. The GIL protects all of
 * this.
 */
#include "data/shared.h"
#include "data.h"

#include <string.h>

static const char *const kind_names[] = { "", "number", "string", "binary", "list", "object" };

PyObject *door_table_take(door_state *state, uni_table *table)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->table_type, Py_tp_alloc);
    table_object *self = (table_object *)allocate(state->table_type, 0);
    if (!self) {
        uni_table_unref(table);
        return NULL;
    }
    self->table = table;
    return (PyObject *)self;
}

uni_table *door_table_of(door_state *state, PyObject *object)
{
    if (PyObject_TypeCheck(object, state->table_type))
        return ((table_object *)object)->table;
    PyErr_SetString(PyExc_TypeError, "a Table is needed here");
    return NULL;
}

int door_names(PyObject *list, const char ***out, Py_ssize_t *count)
{
    *out = NULL;
    *count = 0;
    if (list == Py_None)
        return 0;
    Py_ssize_t size = PySequence_Size(list);
    if (size < 0)
        return -1;
    const char **names = PyMem_Calloc((size_t)size + 1, sizeof *names);
    if (!names) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PySequence_GetItem(list, i); /* the list keeps it alive */
        names[i] = item ? PyUnicode_AsUTF8AndSize(item, NULL) : NULL;
        Py_XDECREF(item);
        if (!names[i]) {
            PyMem_Free(names);
            return -1;
        }
    }
    *out = names;
    *count = size;
    return 0;
}

/* ---- from Python ---- */

static uni_array *array_or_null(door_state *state, PyObject *object, int *failed)
{
    if (object == Py_None)
        return NULL;
    if (PyObject_TypeCheck(object, state->array_type))
        return door_array_of(object);
    PyErr_SetString(PyExc_TypeError, "columns are made of Arrays");
    *failed = 1;
    return NULL;
}

static int kind_of(const char *name)
{
    for (int i = 1; i <= UNI_FIELD_OBJECT; i++)
        if (strcmp(kind_names[i], name) == 0)
            return i;
    door_raise_text(PyExc_ValueError, "there is no kind of column %s", name);
    return 0;
}

/* One (name, kind, values, offsets, valid). */
static int add_column(door_state *state, uni_table *table, PyObject *tuple)
{
    const char *name, *kind;
    PyObject *values, *offsets, *valid;
    int failed = 0;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(tuple, "ssOOO", &name, &kind, &values, &offsets, &valid))
        return -1;
    uni_table_column column = { .field = { .name = name, .kind = (uni_field_kind)kind_of(kind) },
                                .values = array_or_null(state, values, &failed),
                                .offsets = array_or_null(state, offsets, &failed),
                                .valid = array_or_null(state, valid, &failed) };
    if (failed || !column.field.kind || !column.values) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a column needs its values");
        return -1;
    }
    column.field.dtype = uni_array_dtype(column.values);
    if (column.field.kind == UNI_FIELD_NUMBER) {
        column.field.ndim = uni_array_ndim(column.values) - 1;
        for (int i = 0; i < column.field.ndim; i++)
            column.field.shape[i] = uni_array_shape(column.values)[i + 1];
    }
    if (uni_table_add(table, &column, &err) < 0) {
        door_raise(state, &err);
        return -1;
    }
    return 0;
}

/* Table(num_rows, [(name, kind, values, offsets, valid), ...]) */
static PyObject *table_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    door_state *state = PyType_GetModuleState(type);
    long long rows;
    PyObject *columns;
    uni_error err = { 0 };
    uni_table *table = NULL;
    if (!PyArg_ParseTuple(arguments, "LO!", &rows, &PyList_Type, &columns))
        return NULL;
    if (uni_table_new(&table, rows, &err) < 0)
        return door_raise(state, &err);
    for (Py_ssize_t i = 0; i < PyList_Size(columns); i++)
        if (add_column(state, table, PyList_GetItem(columns, i)) < 0) {
            uni_table_unref(table);
            return NULL;
        }
    return door_table_take(state, table);
}

static void table_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    uni_table_unref(((table_object *)self)->table);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- to Python ---- */

static PyObject *array_out(door_state *state, uni_array *array)
{
    if (!array)
        return Py_NewRef(Py_None);
    return door_array_wrap(state, array);
}

static PyObject *one_column(door_state *state, const uni_table_column *column)
{
    PyObject *values = array_out(state, column->values),
             *offsets = array_out(state, column->offsets), *valid = array_out(state, column->valid);
    PyObject *tuple = values && offsets && valid
                          ? Py_BuildValue("(ssOOO)", column->field.name,
                                          kind_names[column->field.kind], values, offsets, valid)
                          : NULL;
    Py_XDECREF(values);
    Py_XDECREF(offsets);
    Py_XDECREF(valid);
    return tuple;
}

/* columns(): in the form that Table(...) takes. */
static PyObject *table_columns(PyObject *self, PyObject *unused)
{
    door_state *state = door_state_of(self);
    const uni_table *table = ((table_object *)self)->table;
    int count = uni_table_num_columns(table);
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++) {
        PyObject *column = one_column(state, uni_table_column_at(table, i));
        if (!column || PyList_SetItem(list, i, column) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *one_text(const uni_table_column *column, const char *data, const int64_t *offsets,
                          int64_t row)
{
    const char *text = data + offsets[row];
    Py_ssize_t size = (Py_ssize_t)(offsets[row + 1] - offsets[row]);
    if (column->valid && !((const uint8_t *)uni_array_data(column->valid))[row])
        return Py_NewRef(Py_None);
    /* Readers check text; a path that is not UTF-8 uses Python's surrogateescape. */
    return column->field.kind == UNI_FIELD_STRING
               ? PyUnicode_DecodeUTF8(text, size, "surrogateescape")
               : PyBytes_FromStringAndSize(text, size);
}

/* texts(index): a string, binary or object column as a list; objects as their bytes. */
static PyObject *table_texts(PyObject *self, PyObject *argument)
{
    const uni_table *table = ((table_object *)self)->table;
    long index = PyLong_AsLong(argument);
    if (index < 0 || index >= uni_table_num_columns(table)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_IndexError, "there is no such column");
        return NULL;
    }
    const uni_table_column *column = uni_table_column_at(table, (int)index);
    if (column->field.kind == UNI_FIELD_NUMBER || column->field.kind == UNI_FIELD_LIST)
        return door_raise_text(PyExc_TypeError, "column %s is not text", column->field.name);
    int64_t rows = uni_table_num_rows(table);
    const char *data = uni_array_data(column->values);
    const int64_t *offsets = uni_array_data(column->offsets);
    PyObject *list = PyList_New((Py_ssize_t)rows);
    for (int64_t row = 0; list && row < rows; row++) {
        PyObject *text = one_text(column, data ? data : "", offsets, row);
        if (!text || PyList_SetItem(list, (Py_ssize_t)row, text) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* schema(): [(name, kind, dtype, shape of a row)] */
static PyObject *table_schema(PyObject *self, PyObject *unused)
{
    const uni_table *table = ((table_object *)self)->table;
    int count = uni_table_num_columns(table);
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++) {
        const uni_field *field = &uni_table_column_at(table, i)->field;
        PyObject *shape = PyTuple_New(field->ndim);
        for (int d = 0; shape && d < field->ndim; d++)
            PyTuple_SetItem(shape, d, PyLong_FromLongLong(field->shape[d]));
        PyObject *item = shape ? Py_BuildValue("(sssN)", field->name, kind_names[field->kind],
                                               uni_dtype_name(field->dtype), shape)
                               : NULL;
        if (!item || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *table_slice(PyObject *self, PyObject *arguments)
{
    long long begin, end;
    uni_table *out = NULL;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "LL", &begin, &end))
        return NULL;
    if (uni_table_slice(&out, ((table_object *)self)->table, begin, end, &err) < 0)
        return door_raise(door_state_of(self), &err);
    return door_table_take(door_state_of(self), out);
}

/* gather(buffer of int64): a table of these rows. */
static PyObject *table_gather(PyObject *self, PyObject *argument)
{
    Py_buffer rows;
    uni_table *out = NULL;
    uni_error err = { 0 };
    if (PyObject_GetBuffer(argument, &rows, PyBUF_C_CONTIGUOUS) < 0)
        return NULL;
    int status = uni__table_pick(&out, ((table_object *)self)->table, rows.buf,
                                 (int64_t)(rows.len / (Py_ssize_t)sizeof(int64_t)), &err);
    PyBuffer_Release(&rows);
    return status < 0 ? door_raise(door_state_of(self), &err)
                      : door_table_take(door_state_of(self), out);
}

uni_table **door_tables_of(door_state *state, PyObject *list, int *count)
{
    Py_ssize_t size = PySequence_Size(list);
    uni_table **tables = size < 0 ? NULL : PyMem_Calloc((size_t)size + 1, sizeof(uni_table *));
    if (!tables)
        return size < 0 ? NULL : (uni_table **)(void *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PySequence_GetItem(list, i);
        tables[i] = item ? door_table_of(state, item) : NULL;
        Py_XDECREF(item); /* the list has it */
        if (!tables[i]) {
            PyMem_Free(tables);
            return NULL;
        }
    }
    *count = (int)size;
    return tables;
}

/* concat([table, ...]): concatenates the rows. */
static PyObject *table_concat(PyObject *class_, PyObject *list)
{
    door_state *state = PyType_GetModuleState((PyTypeObject *)class_);
    int count = 0;
    uni_table *out = NULL, **tables = door_tables_of(state, list, &count);
    uni_error err = { 0 };
    if (!tables)
        return NULL;
    int status = uni__table_append(&out, tables, count, &err);
    PyMem_Free(tables);
    return status < 0 ? door_raise(state, &err) : door_table_take(state, out);
}

/* from_arrow(address of an ArrowSchema, address of an ArrowArray), as exported by pyarrow's
 * _export_to_c; takes ownership of the array. */
static PyObject *table_from_arrow(PyObject *class_, PyObject *arguments)
{
    door_state *state = PyType_GetModuleState((PyTypeObject *)class_);
    unsigned long long schema, array;
    uni_error err = { 0 };
    uni_table *out = NULL;
    if (!PyArg_ParseTuple(arguments, "KK", &schema, &array))
        return NULL;
    if (uni__table_from_arrow(&out, (const struct ArrowSchema *)(uintptr_t)schema,
                              (struct ArrowArray *)(uintptr_t)array, &err) < 0)
        return door_raise(state, &err);
    return door_table_take(state, out);
}

static PyObject *table_rows(PyObject *self, void *unused)
{
    return PyLong_FromLongLong(uni_table_num_rows(((table_object *)self)->table));
}

static PyObject *table_bytes(PyObject *self, void *unused)
{
    return PyLong_FromSize_t(uni__table_bytes(((table_object *)self)->table));
}

static PyGetSetDef getters[] = {
    { "num_rows", table_rows, NULL, NULL, NULL },
    { "nbytes", table_bytes, NULL, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyMethodDef methods[] = {
    { "columns", table_columns, METH_NOARGS, NULL },
    { "texts", table_texts, METH_O, NULL },
    { "schema", table_schema, METH_NOARGS, NULL },
    { "dlpack", door_table_dlpack, METH_VARARGS, NULL },
    { "slice", table_slice, METH_VARARGS, NULL },
    { "gather", table_gather, METH_O, NULL },
    { "concat", table_concat, METH_O | METH_CLASS, NULL },
    { "from_arrow", table_from_arrow, METH_VARARGS | METH_CLASS, NULL },
    { NULL, NULL, 0, NULL },
};
static PyType_Slot slots[] = {
    { Py_tp_doc, "Table(num_rows, [(name, kind, values, offsets, valid)]): rows in columns." },
    { Py_tp_new, table_new },
    { Py_tp_dealloc, table_dealloc },
    { Py_tp_getset, getters },
    { Py_tp_methods, methods },
    { 0, NULL },
};
static PyType_Spec spec = { "unisono._unisono.Table", sizeof(table_object), 0, Py_TPFLAGS_DEFAULT,
                            slots };

int door_table_init(PyObject *module, door_state *state)
{
    state->table_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return state->table_type ? PyModule_AddType(module, state->table_type) : -1;
}
