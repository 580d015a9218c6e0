// SPDX-License-Identifier: Apache-2.0

// An HTTP server that is slow in a known way, to see what load generators make of it.
//
//   server [--port N] [--delay-us N] [--rate N] [--stall-every-ms N --stall-ms N]
//
// An answer is due
//   delay-us after the request has come (any number of requests wait at the same time),
//   not before 1/rate after the answer before it was due (a server that can do no more than `rate` a second), and
//   not within the first stall-ms of each stall-every-ms since the first request (a server that stops now and then).
// One thread. Requests have no body, and answers are due in the order in which requests came.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 65536, WAITING = 1 << 17, EVENTS = 256 };

static const char ANSWER[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n";
static const char END[] = "\r\n\r\n";

// An answer that is to come. `life` tells a connection from a later one with the same descriptor.
struct answer {
	int64_t due_ns;
	int fd;
	uint32_t life;
};

static struct answer waiting[WAITING];
static unsigned first, after; // of `waiting`, modulo its size
static uint32_t lives[CONNECTIONS];
static unsigned char matched[CONNECTIONS]; // bytes of END that the connection's last bytes are

static int64_t delay_ns, gap_ns, stall_every_ns, stall_ns;
static int64_t begin_ns = -1, last_due_ns;

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void end_connection(int fd)
{
	lives[fd]++;
	close(fd);
}

static void request(int fd, int64_t now)
{
	if (begin_ns < 0)
		begin_ns = now;
	int64_t due = now + delay_ns;
	if (due < last_due_ns + gap_ns)
		due = last_due_ns + gap_ns;
	if (stall_every_ns > 0) {
		int64_t into = (due - begin_ns) % stall_every_ns;
		// The first period begins without a stall.
		if (due - begin_ns >= stall_every_ns && into < stall_ns)
			due += stall_ns - into;
	}
	if (due < last_due_ns)
		due = last_due_ns;
	last_due_ns = due;
	if (after - first == WAITING) {
		end_connection(fd);
		return;
	}
	waiting[after++ % WAITING] = (struct answer){ due, fd, lives[fd] };
}

static void answer_all_due(int timer)
{
	while (first != after) {
		struct answer *next = &waiting[first % WAITING];
		int64_t left = next->due_ns - now_ns();
		if (left > 0) {
			struct itimerspec when = { .it_value = { left / 1000000000, left % 1000000000 } };
			if (timerfd_settime(timer, 0, &when, NULL) != 0)
				fail("timerfd_settime");
			return;
		}
		first++;
		if (lives[next->fd] != next->life)
			continue;
		if (send(next->fd, ANSWER, sizeof ANSWER - 1, MSG_NOSIGNAL) != sizeof ANSWER - 1)
			end_connection(next->fd);
	}
}

static void read_requests(int fd)
{
	char bytes[16384];
	ssize_t count = recv(fd, bytes, sizeof bytes, 0);
	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (count <= 0) {
		end_connection(fd);
		return;
	}
	int64_t now = now_ns();
	for (ssize_t i = 0; i < count; i++) {
		if (bytes[i] == END[matched[fd]])
			matched[fd]++;
		else
			matched[fd] = bytes[i] == '\r';
		if (matched[fd] == sizeof END - 1) {
			matched[fd] = 0;
			request(fd, now);
		}
	}
}

static void accept_all(int listener, int epoll)
{
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
		if (fd < 0)
			return;
		if (fd >= CONNECTIONS) {
			close(fd);
			continue;
		}
		int one = 1;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		matched[fd] = 0;
		struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
			fail("epoll_ctl");
	}
}

int main(int argc, char **argv)
{
	long port = 8080;
	for (int i = 1; i + 1 < argc; i += 2) {
		long value = atol(argv[i + 1]);
		if (strcmp(argv[i], "--port") == 0)
			port = value;
		else if (strcmp(argv[i], "--delay-us") == 0)
			delay_ns = value * 1000;
		else if (strcmp(argv[i], "--rate") == 0 && value > 0)
			gap_ns = 1000000000 / value;
		else if (strcmp(argv[i], "--stall-every-ms") == 0)
			stall_every_ns = value * 1000000;
		else if (strcmp(argv[i], "--stall-ms") == 0)
			stall_ns = value * 1000000;
		else {
			fprintf(stderr, "server: %s is not known\n", argv[i]);
			return 2;
		}
	}
	signal(SIGPIPE, SIG_IGN);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	int one = 1;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0)
		fail("bind");
	if (listen(listener, 4096) != 0)
		fail("listen");
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	int epoll = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN, .data.fd = listener };
	epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
	// Edge triggered: setting it anew clears it.
	event = (struct epoll_event){ .events = EPOLLIN | EPOLLET, .data.fd = timer };
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event) != 0)
		fail("epoll_ctl");
	socklen_t length = sizeof address;
	getsockname(listener, (struct sockaddr *)&address, &length);
	printf("listening on port %d\n", ntohs(address.sin_port));
	fflush(stdout);
	for (;;) {
		struct epoll_event events[EVENTS];
		int count = epoll_wait(epoll, events, EVENTS, -1);
		for (int i = 0; i < count; i++) {
			if (events[i].data.fd == listener)
				accept_all(listener, epoll);
			else if (events[i].data.fd != timer)
				read_requests(events[i].data.fd);
		}
		answer_all_due(timer);
	}
}
