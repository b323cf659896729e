/* The words of an entry's text, for _entries.c. Each function passes what it names and says whether it stood there; 0 with no error set
 * means that the entry is one for ujson and Python. No function looks beyond `end`. */
#include "_rows.h"

typedef struct {
    const char *at, *end;
} Text;

typedef struct {
    Walk walk;
    const char *at, *end;
    int building; /* 0: the numbers are collected and everything is looked at; 1: the rows are made */
    char *collected;
    size_t used, room;
    Py_ssize_t count, total; /* numbers so far, and in the end */
    PyObject *numbers; /* list of them; borrowed */
    PyObject *spans;   /* (key, text of what is no tensor) -> a row like it, or None for none */
    PyObject *roles;
} Scan;

static void skip_space(Scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t')) s->at++;
}

/* Whether `sign` comes next; it is passed then. */
static int take(Scan *s, char sign)
{
    skip_space(s);
    if (s->at == s->end || *s->at != sign) return 0;
    s->at++;
    return 1;
}

/* A string of plain ASCII without escapes; `found` is what stands between the quotation marks. */
static int take_string(Scan *s, Text *found)
{
    if (!take(s, '"')) return 0;
    found->at = s->at;
    while (s->at < s->end && *s->at != '"') {
        unsigned char sign = (unsigned char)*s->at++;
        if (sign < 0x20 || sign > 0x7e || sign == '\\') return 0;
    }
    found->end = s->at;
    return take(s, '"');
}

static int take_key(Scan *s, Text *found) { return take_string(s, found) && take(s, ':'); }

static int is(Text text, const char *word)
{
    size_t size = strlen(word);
    return (size_t)(text.end - text.at) == size && memcmp(text.at, word, size) == 0;
}

static int same(Text a, Text b) { return a.end - a.at == b.end - b.at && memcmp(a.at, b.at, (size_t)(a.end - a.at)) == 0; }

static PyObject *unicode(Text text) { return PyUnicode_FromStringAndSize(text.at, text.end - text.at); }

/* Whether the word comes next; it is passed then. */
static int take_word(Scan *s, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(s->end - s->at) < size || memcmp(s->at, word, size) != 0) return 0;
    s->at += size;
    return 1;
}

static const char *digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9') at++;
    return at;
}

/* A number that orjson and ujson read alike: a decimal fraction, or an integer of at most 18 digits. */
static int take_number(Scan *s, Text *found)
{
    found->at = s->at;
    const char *at = s->at + (*s->at == '-'), *begin = at;
    at = digits(at, s->end);
    if (at == begin || at - begin > 300 || (*begin == '0' && at - begin > 1)) return 0;
    int whole = 1;
    if (at < s->end && *at == '.') {
        begin = ++at;
        at = digits(at, s->end);
        if (at == begin || at - begin > 400) return 0;
        whole = 0;
    }
    if (at < s->end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < s->end && (*at == '-' || *at == '+')) at++;
        begin = at;
        at = digits(at, s->end);
        if (at == begin || at - begin > 3) return 0;
        whole = 0;
    }
    if (whole && (at - found->at > 18 || (found->at[0] == '-' && found->at[1] == '0'))) return 0;
    found->end = s->at = at;
    return 1;
}

static int collect(Scan *s, Text number)
{
    size_t size = (size_t)(number.end - number.at);
    if (s->used + size + 2 > s->room) {
        size_t room = 2 * (s->used + size + 1024);
        char *larger = PyMem_Realloc(s->collected, room);
        if (!larger) {
            PyErr_NoMemory();
            return 0;
        }
        s->collected = larger;
        s->room = room;
    }
    s->collected[s->used++] = s->count++ ? ',' : '[';
    memcpy(s->collected + s->used, number.at, size);
    s->used += size;
    return 1;
}

/* A number, NaN, an infinity, null, true or false; a new reference where rows are made. */
static int take_statistic(Scan *s, PyObject **found)
{
    static const char *const words[] = {"null", "true", "false", "NaN", "Infinity", "-Infinity"};
    skip_space(s);
    if (s->at == s->end) return 0;
    for (int i = 0; i < 6; i++) {
        if (*s->at != *words[i] || !take_word(s, words[i])) continue;
        if (!s->building) return 1;
        double values[] = {Py_NAN, Py_HUGE_VAL, -Py_HUGE_VAL};
        *found = i > 2 ? PyFloat_FromDouble(values[i - 3]) : Py_NewRef(i == 0 ? Py_None : i == 1 ? Py_True : Py_False);
        return *found != NULL;
    }
    Text number;
    if (!take_number(s, &number)) return 0;
    if (!s->building) return collect(s, number);
    if (s->count >= s->total) return 0; /* of a record that turned out to be none, and was taken back */
    *found = PyList_GetItem(s->numbers, s->count++);
    if (!*found) return 0;
    double value = PyFloat_CheckExact(*found) ? PyFloat_AsDouble(*found) : 0.0;
    if (value - value != 0.0) { /* too large for a float */
        *found = NULL;
        return 0;
    }
    Py_INCREF(*found);
    return 1;
}

/* `[` digits `]` as they stand; Python reads them. */
static int take_shape(Scan *s, Text *found)
{
    if (!take(s, '[')) return 0;
    found->at = s->at - 1;
    while (s->at < s->end && *s->at != ']') {
        char sign = *s->at++;
        if (!((sign >= '0' && sign <= '9') || sign == ',' || sign == ' ' || sign == '\n' || sign == '\r' || sign == '\t')) return 0;
    }
    found->end = s->at + 1;
    return take(s, ']');
}
