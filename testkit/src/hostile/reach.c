// Tries to get out: reach tcp|udp ADDRESS PORT. Prints what came of it: an error, or the beginning of an answer.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static int die(const char *what) { printf("%s: %s\n", what, strerror(errno)); return 0; }

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  int datagram = !strcmp(argv[1], "udp");
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(atoi(argv[3]))};
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[3]))};
  int is_six = strchr(argv[2], ':') != NULL;
  if (inet_pton(is_six ? AF_INET6 : AF_INET, argv[2], is_six ? (void *)&six.sin6_addr : (void *)&four.sin_addr) != 1) return 2;
  int fd = socket(is_six ? AF_INET6 : AF_INET, datagram ? SOCK_DGRAM : SOCK_STREAM, 0);
  if (fd < 0) return die("socket");
  struct timeval patience = {.tv_sec = 10};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (connect(fd, is_six ? (void *)&six : (void *)&four, is_six ? sizeof six : sizeof four)) return die("connect");
  const char *ask = "GET / HTTP/1.0\r\n\r\n";
  if (send(fd, ask, strlen(ask), MSG_NOSIGNAL) < 0) return die("send");
  char answer[13] = {0};
  ssize_t got = recv(fd, answer, 12, datagram ? 0 : MSG_WAITALL);
  if (got < 0) return die("recv");
  printf("%s\n", answer);
  return 0;
}
