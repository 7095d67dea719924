/* Stub broker and load generator of the benches in C, so that the proxy is the bottleneck, not they.
 *
 *   peer stub TEMPLATES PORT                               answers each request by the template of its API and version
 *   peer load TEMPLATES PORT CONNS DEPTH RATE CHURN COUNTER  each connection sends one of the templates; RATE requests/s in all, 0 = closed loop;
 *                                                          CHURN 1 = a new connection for each request; with a RATE: RATE connections/s, at
 *                                                          most CONNS at a time, each asks the first and, in turn, one of the other TEMPLATES
 *
 * 127.0.0.1 only. bench/harness/frames.py writes TEMPLATES. COUNTER is a mapped file of 8 bytes: the number of answers received so
 * far. If the file is longer, a paced load also counts answers by the microseconds since their request was due, in the following 8-byte
 * counters; the last one counts all longer times. The process ends when its standard input ends. bench/harness/stub_broker.py and
 * bench/harness/load.py do the same in Python.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RING 2048          /* frames waiting to be sent on one connection */
#define BATCH 64           /* frames in one sendmsg */
#define READ_BYTES (1 << 20)
#define HEAD_BYTES 12      /* length, api key, version, correlation id */

struct template { int16_t key, version; uint8_t *bytes; size_t size; };
struct entry { struct template *template; uint32_t correlation; };
struct conn {
    int fd, pollout, closed;
    struct entry ring[RING];
    unsigned first, count;
    size_t sent;             /* bytes of the first entry that are sent */
    uint8_t head[HEAD_BYTES];
    unsigned head_len;
    uint64_t body_left;
    unsigned in_flight;
    struct template *request;  /* what a load connection sends */
    struct template *second;   /* what it sends once the first is answered; paced churn only */
    uint32_t next_correlation, next_answer;
    uint64_t *due;             /* when each request in flight was due, by correlation id; only where latencies are counted */
};

static struct template *templates;
static int template_count, epoll_fd;
static uint8_t *read_buffer;
static volatile uint64_t *counter, *latencies;
static uint64_t latency_count, due_ns, first_due_ns;
static uint64_t uncounted;
static int correlation_at, is_load, depth, churn, port, live;
static double rate;

static void die(const char *what) { perror(what); exit(1); }

static void read_templates(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    struct __attribute__((packed)) { int16_t key, version; int32_t prefix; int64_t filler; int32_t suffix; } h;
    while (fread(&h, sizeof h, 1, file) == 1) {
        templates = realloc(templates, (template_count + 1) * sizeof *templates);
        struct template *t = &templates[template_count++];
        t->key = h.key; t->version = h.version; t->size = h.prefix + h.filler + h.suffix;
        t->bytes = calloc(1, t->size);
        if (fread(t->bytes, 1, h.prefix, file) != (size_t)h.prefix) die("template");
        if (h.suffix && fread(t->bytes + h.prefix + h.filler, 1, h.suffix, file) != (size_t)h.suffix) die("template");
    }
    fclose(file);
}

static struct template *find_template(int16_t key, int16_t version) {
    for (int i = 0; i < template_count; i++)
        if (templates[i].key == key && templates[i].version == version) return &templates[i];
    fprintf(stderr, "no template for api %d v%d\n", key, version);
    exit(1);
}

static void watch(struct conn *c, int op, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll_fd, op, c->fd, &event) < 0) die("epoll_ctl");
}

static struct conn *new_conn(int fd) {
    struct conn *c = calloc(1, sizeof *c);
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->fd = fd;
    return c;
}

static void push(struct conn *c, struct template *t, uint32_t correlation) {
    c->ring[(c->first + c->count++) % RING] = (struct entry){t, correlation};
}

/* Send the queued frames; the correlation id is patched in a copy of the first bytes. */
static void flush(struct conn *c) {
    static uint8_t heads[BATCH][HEAD_BYTES];
    static struct iovec parts[BATCH * 2];
    size_t head_len = correlation_at + 4;
    while (c->count) {
        int n = 0;
        size_t skip = c->sent, total = 0;
        for (unsigned i = 0; i < c->count && i < BATCH && total < (4 << 20); i++) {
            struct entry *e = &c->ring[(c->first + i) % RING];
            memcpy(heads[i], e->template->bytes, head_len);
            memcpy(heads[i] + correlation_at, &e->correlation, 4);
            if (skip < head_len) parts[n++] = (struct iovec){heads[i] + skip, head_len - skip};
            size_t at = skip > head_len ? skip : head_len;
            parts[n++] = (struct iovec){e->template->bytes + at, e->template->size - at};
            total += e->template->size - skip;
            skip = 0;
        }
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = n};
        ssize_t out = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (out < 0) {
            if (errno != EAGAIN) { c->closed = 1; return; }
            if (!c->pollout) { watch(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT); c->pollout = 1; }
            return;
        }
        c->sent += out;
        while (c->count && c->sent >= c->ring[c->first].template->size) {
            c->sent -= c->ring[c->first].template->size;
            c->first = (c->first + 1) % RING;
            c->count--;
        }
    }
    if (c->pollout) { watch(c, EPOLL_CTL_MOD, EPOLLIN); c->pollout = 0; }
}

static void start_connect(void);

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void note_latency(struct conn *c) {
    uint64_t us = (now_ns() - c->due[(c->next_answer - 1) % RING]) / 1000;
    latencies[us < latency_count ? us : latency_count - 1]++;
}

static void send_request(struct conn *c) {
    c->in_flight++;
    if (c->due) c->due[c->next_correlation % RING] = due_ns;
    push(c, c->request, htonl(c->next_correlation++));
}

static void frame_ended(struct conn *c) {
    if (!is_load) return;
    c->in_flight--;
    if (c->due) note_latency(c);
    if (c->second) {
        c->request = c->second;
        c->second = NULL;
        send_request(c);
        return;
    }
    uncounted++;
    if (churn) c->closed = 1;
    else if (rate == 0) send_request(c);
}

static void head_came(struct conn *c) {
    int32_t size;
    memcpy(&size, c->head, 4);
    size = ntohl(size);
    c->body_left = (uint64_t)size + 4 - c->head_len;
    if (is_load) {
        uint32_t correlation;
        memcpy(&correlation, c->head + 4, 4);
        if (ntohl(correlation) != c->next_answer++) { fprintf(stderr, "answer out of order\n"); exit(1); }
        return;
    }
    int16_t key, version;
    uint32_t correlation;
    memcpy(&key, c->head + 4, 2); memcpy(&version, c->head + 6, 2); memcpy(&correlation, c->head + 8, 4);
    struct template *t = find_template(ntohs(key), ntohs(version));
    push(c, t, correlation);
}

static void scan(struct conn *c, uint8_t *at, size_t left) {
    unsigned head_bytes = is_load ? 8 : HEAD_BYTES;
    while (left) {
        if (c->body_left) {
            size_t step = left < c->body_left ? left : c->body_left;
            at += step; left -= step; c->body_left -= step;
            if (!c->body_left) frame_ended(c);
            continue;
        }
        size_t need = head_bytes - c->head_len, step = left < need ? left : need;
        memcpy(c->head + c->head_len, at, step);
        c->head_len += step; at += step; left -= step;
        if (c->head_len == head_bytes) {
            head_came(c);
            c->head_len = 0;
            if (!c->body_left) frame_ended(c);
        }
    }
}

static void close_conn(struct conn *c) {
    close(c->fd);
    if (is_load && !churn) { fprintf(stderr, "connection closed by the other side\n"); exit(1); }
    free(c->due);
    free(c);
    if (is_load) live--;
    if (is_load && rate == 0) start_connect();
}

static void readable(struct conn *c) {
    if (c->count > RING / 2) return;
    ssize_t got = recv(c->fd, read_buffer, READ_BYTES, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) { c->closed = 1; return; }
    if (got > 0) scan(c, read_buffer, got);
}

static void event(struct conn *c, uint32_t events) {
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) readable(c);
    if (!c->closed && c->count) flush(c);
    if (c->closed) close_conn(c);
}

static struct sockaddr_in loopback(int at_port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(at_port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static struct conn **conns;
static int conn_count;

static struct conn *connect_one(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(port);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
    static int connected;
    struct conn *c = new_conn(fd);
    live++;
    if (latencies) c->due = malloc(RING * sizeof *c->due);
    c->request = &templates[connected % template_count];
    if (churn && rate > 0) {
        c->request = templates;
        c->second = template_count > 1 ? &templates[1 + connected % (template_count - 1)] : NULL;
    }
    connected++;
    watch(c, EPOLL_CTL_ADD, EPOLLIN);
    return c;
}

static void start_connect(void) {
    struct conn *c = connect_one();
    send_request(c);
    flush(c);
}

static void start_load(char **arguments) {
    read_templates(arguments[0]);
    port = atoi(arguments[1]); conn_count = atoi(arguments[2]); depth = atoi(arguments[3]);
    rate = atof(arguments[4]); churn = atoi(arguments[5]);
    int fd = open(arguments[6], O_RDWR);
    struct stat file;
    if (fd < 0 || fstat(fd, &file) < 0) die("counter");
    counter = mmap(NULL, file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (counter == MAP_FAILED) die("counter");
    latency_count = file.st_size / 8 - 1;
    if (latency_count && rate > 0) latencies = counter + 1;
    conns = calloc(conn_count, sizeof *conns);
    for (int i = 0; i < conn_count && !(churn && rate > 0); i++) {
        conns[i] = connect_one();
        if (rate > 0) continue;
        for (int k = 0; k < depth; k++) send_request(conns[i]);
        flush(conns[i]);
    }
}

static void paced(int timer) {
    static int next;
    uint64_t ticks;
    if (read(timer, &ticks, 8) != 8) return;
    static uint64_t tick;
    for (; ticks; ticks--) {
        due_ns = first_due_ns + (uint64_t)(tick++ * (long)(1e9 / rate));
        if (churn) {
            if (live < conn_count) start_connect();
            continue;
        }
        struct conn *c = conns[next++ % conn_count];
        if (c->in_flight >= (unsigned)depth) continue;
        send_request(c);
        flush(c);
    }
}

static int start_timer(void) {
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    long nanoseconds = 1e9 / rate;
    struct itimerspec every = {.it_interval = {.tv_nsec = nanoseconds}, .it_value = {.tv_nsec = nanoseconds}};
    first_due_ns = now_ns() + nanoseconds;
    timerfd_settime(timer, 0, &every, NULL);
    return timer;
}

static int start_stub(char **arguments) {
    read_templates(arguments[0]);
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = loopback(atoi(arguments[1]));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 4096) < 0) die("listen");
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void accept_some(int listener) {
    int fd;
    while ((fd = accept(listener, NULL, NULL)) >= 0) watch(new_conn(fd), EPOLL_CTL_ADD, EPOLLIN);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    is_load = !strcmp(argv[1], "load");
    correlation_at = is_load ? 8 : 4;
    read_buffer = malloc(READ_BYTES);
    epoll_fd = epoll_create1(0);
    struct conn stdin_mark = {.fd = 0}, special = {.fd = -1};
    watch(&stdin_mark, EPOLL_CTL_ADD, EPOLLIN);
    if (is_load) start_load(argv + 2);
    if (!is_load) special.fd = start_stub(argv + 2);
    if (is_load && rate > 0) special.fd = start_timer();
    if (special.fd >= 0) watch(&special, EPOLL_CTL_ADD, EPOLLIN);
    printf("ready\n");
    fflush(stdout);
    struct epoll_event events[256];
    for (;;) {
        int n = epoll_wait(epoll_fd, events, 256, -1);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (c == &stdin_mark) return 0;
            if (c == &special) { if (is_load) paced(special.fd); else accept_some(special.fd); }
            else event(c, events[i].events);
        }
        if (counter && uncounted) { *counter += uncounted; uncounted = 0; }
    }
}
