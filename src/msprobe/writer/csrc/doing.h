/* Doing one job: a file is written, or another name given to one. No Python, no lock held. Included by tensor_jobs.h. */
/* --- doing one ------------------------------------------------------------------------------------------------------------------------- */
static void note_failure(Queue *q, const Directory *directory, const char *name, int error, int of_content)
{
    size_t n = strlen(directory->path), m = strlen(name);
    Failure *failure = malloc(sizeof *failure);
    char *path = malloc(n + m + 2);
    if (!failure || !path) { /* it is not told then */
        free(failure);
        free(path);
        return;
    }
    memcpy(path, directory->path, n);
    path[n] = '/';
    memcpy(path + n + 1, name, m + 1);
    *failure = (Failure){NULL, error, of_content, path};
    pthread_mutex_lock(&q->lock);
    failure->next = q->failures;
    q->failures = failure;
    pthread_mutex_unlock(&q->lock);
}

/* Why a directory cannot be made, which is no matter where it is there: a file system may give any reason then. */
static int make_directory(const char *path)
{
    struct stat there;
    if (mkdir(path, 0777) == 0) return 0;
    int error = errno;
    if (stat(path, &there) < 0) return error;
    return S_ISDIR(there.st_mode) ? 0 : ENOTDIR;
}

static int make_directories(const char *path)
{
    char *part = strdup(path);
    int error = part ? 0 : ENOMEM;
    for (char *at = part; at && *at && !error;) {
        at = strchr(at + 1, '/');
        if (at) *at = 0;
        error = make_directory(part);
        if (at) *at = '/';
    }
    free(part);
    return error;
}

/* Opens the directory, which may not be there yet, or no longer: then it is made. The number stays: another thread may be using it. */
static int open_directory(Queue *q, Directory *directory, int again)
{
    if (directory->file >= 0 && !again) return 0;
    int file = open(directory->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = file < 0 ? errno : 0;
    if (error == ENOENT && !(error = make_directories(directory->path))) {
        file = open(directory->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        error = file < 0 ? errno : 0;
    }
    if (error) return error;
    pthread_mutex_lock(&q->lock);
    if (directory->file < 0) {
        directory->file = file;
        file = -1;
    } else if (again && (dup2(file, directory->file) < 0 || fcntl(directory->file, F_SETFD, FD_CLOEXEC) < 0)) {
        error = errno;
    }
    pthread_mutex_unlock(&q->lock);
    if (file >= 0) close(file);
    return error;
}

static int write_new(Queue *q, Directory *directory, const Operation *operation)
{
    int error = open_directory(q, directory, 0);
    if (!error) error = write_file(directory->file, operation);
    if (error == ENOENT && !(error = open_directory(q, directory, 1))) error = write_file(directory->file, operation);
    return error;
}

static void count_file(Queue *q, long long bytes)
{
    pthread_mutex_lock(&q->lock);
    q->files++;
    q->bytes += bytes;
    pthread_mutex_unlock(&q->lock);
}

static int copy_bytes(int from, int to, long long *bytes)
{
    enum { AT_A_TIME = 1 << 16 };
    char *buffer = malloc(AT_A_TIME);
    int error = buffer ? 0 : ENOMEM;
    *bytes = 0;
    while (!error) {
        ssize_t n = read(from, buffer, AT_A_TIME);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) error = errno;
        if (n <= 0) break;
        struct iovec part = {buffer, (size_t)n};
        if (write_all(to, &part, 1, (off_t)*bytes) < 0) error = errno;
        *bytes += n;
    }
    free(buffer);
    return error;
}

static int copy_file(Queue *q, int directory, const char *original, const char *name)
{
    char hidden[32];
    long long bytes = 0;
    hidden_name(hidden, sizeof hidden, name);
    int from = openat(directory, original, O_RDONLY | O_CLOEXEC), error = from < 0 ? errno : 0;
    int to = error ? -1 : open_new(directory, hidden);
    if (!error && to < 0) error = errno;
    if (!error) error = copy_bytes(from, to, &bytes);
    if (from >= 0) close(from);
    if (to >= 0 && close(to) < 0 && !error && errno != EINTR) error = errno;
    if (!error && renameat(directory, hidden, directory, name) < 0) error = errno;
    if (error && to >= 0) unlinkat(directory, hidden, 0);
    if (!error) count_file(q, bytes);
    return error;
}

static int is_refusal(int error)
{
    return error == EMLINK || error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EXDEV || error == ENOENT || error == EACCES;
}

static int another_name(const Queue *q, int directory, const char *original, const char *name)
{
    if (q->refuse_links) return q->refuse_links;
    Operation link = {.name = name, .original = original};
    return link_file(directory, &link);
}

/* The name of the file that holds a content, as long as that is; 0: there is none. Holds no lock. */
static int file_of(Queue *q, const Content *content, char *out, size_t room)
{
    pthread_mutex_lock(&q->lock);
    int known = content->state == WRITTEN && strlen(content->name) < room;
    if (known) strcpy(out, content->name);
    pthread_mutex_unlock(&q->lock);
    return known;
}

/* A further name for a content that is written. */
static void link_name(Queue *q, Directory *directory, Content *content, const char *name)
{
    char original[NAME_MAX + 1], later[NAME_MAX + 1];
    if (!file_of(q, content, original, sizeof original)) {
        note_failure(q, directory, name, 0, 1);
        return;
    }
    int error = another_name(q, directory->file, original, name);
    if (is_refusal(error) && file_of(q, content, later, sizeof later) && strcmp(later, original) != 0)
        error = another_name(q, directory->file, later, name); /* there has been a new file meanwhile */
    if (!error) {
        count_file(q, 0);
        return;
    }
    char *own = is_refusal(error) ? strdup(name) : NULL;
    if (!own || (error = copy_file(q, directory->file, original, name))) {
        if (own) {
            pthread_mutex_lock(&q->lock);
            content->state = FAILED; /* the next of this content brings its data along */
            pthread_mutex_unlock(&q->lock);
        }
        free(own);
        note_failure(q, directory, name, error, 0);
        return;
    }
    pthread_mutex_lock(&q->lock);
    char *before = content->name;
    content->name = own;
    pthread_mutex_unlock(&q->lock);
    free(before);
}

/* The file of a content has been written or not: what has waited for it. */
static void settle_content(Queue *q, Directory *directory, Content *content, const char *name, int error)
{
    char *own = error ? NULL : strdup(name);
    if (!own && !error) error = ENOMEM;
    pthread_mutex_lock(&q->lock);
    content->state = error ? FAILED : WRITTEN;
    content->name = own;
    Name *waiting = content->waiting;
    content->waiting = NULL;
    pthread_mutex_unlock(&q->lock);
    while (waiting) {
        Name *next = waiting->next;
        if (error) note_failure(q, directory, waiting->text, 0, 1);
        else link_name(q, directory, content, waiting->text);
        free(waiting);
        waiting = next;
    }
}

/* Whether the name waits now for the file to be written. */
static int joins_waiting(Queue *q, Content *content, const char *text)
{
    size_t size = strlen(text) + 1;
    Name *name = malloc(sizeof *name + size);
    if (name) memcpy(name->text, text, size);
    pthread_mutex_lock(&q->lock);
    int joins = name && content->state == PENDING;
    if (joins) {
        Name **last = &content->waiting;
        while (*last) last = &(*last)->next;
        name->next = NULL;
        *last = name;
    }
    pthread_mutex_unlock(&q->lock);
    if (!joins) free(name);
    return joins;
}

static void do_job(Queue *q, Job *job)
{
    const Operation *op = &job->operation;
    if (!op->head) {
        if (!joins_waiting(q, job->content, op->name)) link_name(q, job->directory, job->content, op->name);
        return;
    }
    int error = write_new(q, job->directory, op);
    if (error) note_failure(q, job->directory, op->name, error, 0);
    else count_file(q, op->n_head + op->n_data + op->n_tail);
    settle_content(q, job->directory, job->content, op->name, error);
}
