/*
 * engine.c - unisono._engine: the module, its exceptions, and the conversion of engine errors.
 */
#include "engine.h"

#include <string.h>

engine_state *engine_state_of(PyObject *object)
{
    return PyType_GetModuleState(Py_TYPE(object));
}

PyObject *engine_new(PyTypeObject *type)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return allocate(type, 0);
}

void engine_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

int engine_getbuffer_of(PyObject *array, Py_buffer *view, int flags)
{
    int status = array ? PyObject_GetBuffer(array, view, flags) : -1;
    Py_XDECREF(array);
    return status;
}

void engine_replace(PyObject **slot, PyObject *value)
{
    PyObject *old = *slot;
    *slot = value;
    Py_XDECREF(old);
}

int engine_add_type(PyObject *module, PyTypeObject **out, PyType_Spec *spec)
{
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *out ? PyModule_AddType(module, *out) : -1;
}

PyObject *engine_raise(engine_state *state, const uni_error *err)
{
    if (state->raised) {
        PyObject *value = state->raised;
        state->raised = NULL;
        if (err->code == UNI_EFUNCTION)
            PyErr_SetObject((PyObject *)Py_TYPE(value), value);
        Py_DECREF(value);
        if (PyErr_Occurred())
            return NULL;
    }
    switch (err->code) {
    case UNI_EINVAL:
    case UNI_ENOTFOUND:
    case UNI_EFORMAT:
    case UNI_ESHAPE:
    case UNI_ELIMIT:
    case UNI_EUNSUPPORTED:
        return door_raise_as(state->value_error, err);
    case UNI_EDTYPE:
        return door_raise_as(state->type_error, err);
    default:
        return door_raise(&state->door, err);
    }
}

int engine_keep_exception(engine_state *state, uni_error *err)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value && traceback)
        PyException_SetTraceback(value, traceback);
    int status = door_error_from(value, err);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    if (state->raised) /* the first one is the cause */
        Py_XDECREF(value);
    else
        state->raised = value;
    return status;
}

static PyObject *make_error(const char *name, const char *doc, PyObject *error, PyObject *builtin)
{
    PyObject *bases = PyTuple_Pack(2, error, builtin);
    PyObject *made = bases ? PyErr_NewExceptionWithDoc(name, doc, bases, NULL) : NULL;
    Py_XDECREF(bases);
    return made;
}

/* Error and Array are those of unisono._unisono: one exception and one array type for the whole
 * package. */
static int add_errors(PyObject *module, engine_state *state)
{
    PyObject *core = PyImport_ImportModule("unisono._unisono");
    state->door.error = core ? PyObject_GetAttrString(core, "Error") : NULL;
    state->door.array_type = core ? (PyTypeObject *)PyObject_GetAttrString(core, "Array") : NULL;
    Py_XDECREF(core);
    if (!state->door.error || !state->door.array_type)
        return -1;
    state->value_error =
        make_error("unisono.EngineValueError", "The engine was given something that does not fit.",
                   state->door.error, PyExc_ValueError);
    state->type_error =
        make_error("unisono.EngineTypeError", "The engine was given elements of a wrong type.",
                   state->door.error, PyExc_TypeError);
    if (!state->value_error || !state->type_error)
        return -1;
    return PyModule_AddObjectRef(module, "EngineValueError", state->value_error) < 0
               ? -1
               : PyModule_AddObjectRef(module, "EngineTypeError", state->type_error);
}

static int setup(PyObject *module)
{
    engine_state *state = PyModule_GetState(module);
    if (add_errors(module, state) < 0 || engine_columns_init(module, state) < 0 ||
        engine_batches_init(module, state) < 0 || engine_layers_init(module, state) < 0 ||
        engine_objects_init(module, state) < 0 || engine_optimizers_init(module, state) < 0 ||
        engine_models_init(module, state) < 0 || engine_tapes_init(module, state) < 0 ||
        engine_strategies_init(module, state) < 0)
        return -1;
    if (PyModule_AddIntConstant(module, "NO_EPOCHS", UNI_NO_EPOCHS) < 0 ||
        PyModule_AddIntConstant(module, "SEED_ZERO", (long)UNI_SEED_ZERO) < 0)
        return -1;
    return PyModule_AddIntConstant(module, "MAX_INPUTS", UNI_MODEL_MAX_INPUTS);
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    engine_state *state = PyModule_GetState(module);
    Py_VISIT(state->door.error);
    Py_VISIT(state->door.array_type);
    Py_VISIT(state->value_error);
    Py_VISIT(state->type_error);
    PyTypeObject *types[] = { state->strings, state->batches, state->layer,     state->parameter,
                              state->model,   state->loss,    state->metric,    state->optimizer,
                              state->tape,    state->tensor,  state->gradients, state->strategy,
                              state->replica };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        Py_VISIT(types[i]);
    Py_VISIT(state->raised);
    return 0;
}

static int clear(PyObject *module)
{
    engine_state *state = PyModule_GetState(module);
    Py_CLEAR(state->door.error);
    Py_CLEAR(state->door.array_type);
    Py_CLEAR(state->value_error);
    Py_CLEAR(state->type_error);
    PyTypeObject **types[] = { &state->strings,   &state->batches,   &state->layer,
                               &state->parameter, &state->model,     &state->loss,
                               &state->metric,    &state->optimizer, &state->tape,
                               &state->tensor,    &state->gradients, &state->strategy,
                               &state->replica };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        Py_CLEAR(*types[i]);
    Py_CLEAR(state->raised);
    return 0;
}

static PyModuleDef_Slot module_slots[] = { { Py_mod_exec, setup }, { 0, NULL } };
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "unisono._engine",
    .m_doc = "libunisono-engine, as it is. Programs use unisono.keras and unisono.tf.",
    .m_size = sizeof(engine_state),
    .m_slots = module_slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__engine(void);
PyMODINIT_FUNC PyInit__engine(void)
{
    return PyModuleDef_Init(&definition);
}
