/* placeholder */
#define API_CALLS_METHODS
static int api_calls_init(PyObject *module)
{
    (void)module;
    return 1;
}
