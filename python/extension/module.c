/*
 * module.c - unisono._unisono: the module itself and its one exception.
 */
#include <unisono/version.h>

#include "data.h"

static int add_error(PyObject *module, door_state *state)
{
    PyObject *defaults =
        Py_BuildValue("{s:O,s:i,s:s}", "code", Py_None, "status", 0, "message", "");
    state->error = defaults ? PyErr_NewExceptionWithDoc(
                                  "unisono.Error",
                                  "What libunisono says went wrong: `code` is the name of the "
                                  "error (docs/errors.md), `message` its sentence.",
                                  PyExc_RuntimeError, defaults)
                            : NULL;
    Py_XDECREF(defaults);
    return state->error ? PyModule_AddObjectRef(module, "Error", state->error) : -1;
}

static int setup(PyObject *module)
{
    door_state *state = PyModule_GetState(module);
    if (add_error(module, state) < 0 || door_array_init(module, state) < 0 ||
        door_trainer_init(module, state) < 0 || door_iterator_init(module, state) < 0 ||
        door_session_init(module, state) < 0 || door_comm_init(module, state) < 0 ||
        door_tune_init(module, state) < 0)
        return -1;
    if (door_table_init(module, state) < 0 || door_dataset_init(module, state) < 0 ||
        door_data_iterator_init(module, state) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "version", uni_version());
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    door_state *state = PyModule_GetState(module);
    Py_VISIT(state->error);
    Py_VISIT(state->array_type);
    Py_VISIT(state->trainer_type);
    Py_VISIT(state->iterator_type);
    Py_VISIT(state->session_type);
    Py_VISIT(state->tuner_type);
    Py_VISIT(state->comm_type);
    Py_VISIT(state->buffer_type);
    Py_VISIT(state->request_type);
    Py_VISIT(state->buckets_type);
    Py_VISIT(state->queue_type);
    Py_VISIT(state->call_type);
    Py_VISIT(state->table_type);
    Py_VISIT(state->dataset_type);
    Py_VISIT(state->data_iterator_type);
    return 0;
}

static int clear(PyObject *module)
{
    door_state *state = PyModule_GetState(module);
    Py_CLEAR(state->error);
    Py_CLEAR(state->array_type);
    Py_CLEAR(state->trainer_type);
    Py_CLEAR(state->iterator_type);
    Py_CLEAR(state->session_type);
    Py_CLEAR(state->tuner_type);
    Py_CLEAR(state->comm_type);
    Py_CLEAR(state->buffer_type);
    Py_CLEAR(state->request_type);
    Py_CLEAR(state->buckets_type);
    Py_CLEAR(state->queue_type);
    Py_CLEAR(state->call_type);
    Py_CLEAR(state->table_type);
    Py_CLEAR(state->dataset_type);
    Py_CLEAR(state->data_iterator_type);
    return 0;
}

static PyModuleDef_Slot module_slots[] = { { Py_mod_exec, setup }, { 0, NULL } };
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "unisono._unisono",
    .m_doc = "libunisono, as it is. Programs use the modules around it.",
    .m_size = sizeof(door_state),
    .m_methods = door_file_methods,
    .m_slots = module_slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__unisono(void);
PyMODINIT_FUNC PyInit__unisono(void)
{
    return PyModuleDef_Init(&definition);
}
